// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Direct is an interface of GPUDirect: device nodes through which storage, NICs or
// processors reach the memory of GPUs. Its value is the name of nvcdi's mode.
type Direct string

// The interfaces of GPUDirect.
const (
	// DirectStorage is GPUDirect Storage: the nodes of the kernel module nvidia-fs,
	// /run/udev and cufile.json.
	DirectStorage Direct = "gds"
	// DirectCopy is GDRCopy: the node of the kernel module gdrdrv.
	DirectCopy Direct = "gdrcopy"
	// DirectRDMA is RDMA by Mellanox' drivers: the nodes uverbs and rdma_cm.
	DirectRDMA Direct = "mofed"
)

// Directs returns all interfaces of GPUDirect.
func Directs() []Direct { return []Direct{DirectStorage, DirectCopy, DirectRDMA} }

// ParseDirects parses a comma-separated list of interfaces. An empty text has none.
func ParseDirects(text string) ([]Direct, error) {
	if text == "" {
		return nil, nil
	}
	var found []Direct
	for name := range strings.SplitSeq(text, ",") {
		d := Direct(name)
		if !slices.Contains(Directs(), d) {
			return nil, fmt.Errorf("%q: %w: want a list of %s", name, ErrInvalid, joinDirects())
		}
		if !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	return found, nil
}

func joinDirects() string {
	var names []string
	for _, d := range Directs() {
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}

// Nodes returns patterns of the device nodes of the interface, relative to the folder
// dev.
func (d Direct) Nodes() []string {
	switch d {
	case DirectStorage:
		return []string{"nvidia-fs*"}
	case DirectCopy:
		return []string{"gdrdrv"}
	case DirectRDMA:
		return []string{"infiniband/uverbs*", "infiniband/rdma_cm"}
	}
	return nil
}
