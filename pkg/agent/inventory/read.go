// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Bus reads GPUs as the kernel sees them.
type Bus interface {
	// GPUs returns the PCI addresses of the GPUs that are bound to NVIDIA's driver. The
	// addresses are usable with an error as well.
	GPUs() ([]gpu.PCIAddress, error)
	// Locate returns the node with the NUMA node and PCIe root of each GPU. The node is
	// usable with an error as well.
	Locate(node gpu.Node) (gpu.Node, error)
}

// Read finds the node's GPUs on the bus, and reads them by the snapshot of NVML. A GPU
// that NVML does not list is in [gpu.Node.Unreadable] with its address. A GPU without an
// entry in the kernel's files is read without its place in the machine, which is in
// [gpu.Node.Incomplete]. Read fails only if the snapshot does.
func Read(ctx context.Context, bus Bus, snapshot func(context.Context) (gpu.Node, error)) (gpu.Node, error) {
	found, busErr := bus.GPUs()
	node, err := snapshot(ctx)
	if err != nil {
		return node, err
	}
	node.Unreadable = match(found, node)
	node, err = bus.Locate(node)
	node.Incomplete = errors.Join(busErr, err)
	return node, nil
}

// match returns the GPUs that cannot be read: the unreadable GPUs that NVML lists, and
// the GPUs at found addresses that NVML does not list. If NVML lists one GPU without
// an address and one address is left, they are the same GPU. If there are more, any of
// the addresses may belong to the listed GPUs, and none is reported as missing.
func match(found []gpu.PCIAddress, node gpu.Node) []gpu.Unreadable {
	unreadable := slices.Clone(node.Unreadable)
	listed := map[gpu.PCIAddress]bool{}
	for _, g := range node.GPUs {
		listed[g.Address] = true
	}
	var nameless []int
	for i, u := range unreadable {
		if u.Address == nil {
			nameless = append(nameless, i)
		} else {
			listed[*u.Address] = true
		}
	}
	left := slices.DeleteFunc(slices.Clone(found), func(a gpu.PCIAddress) bool { return listed[a] })
	switch {
	case len(nameless) == 1 && len(left) == 1:
		unreadable[nameless[0]].Address = &left[0]
	case len(nameless) == 0:
		for i := range left {
			unreadable = append(unreadable, gpu.Unreadable{
				Index: -1, Address: &left[i], Err: fmt.Errorf("%w: it is on the PCI bus and the driver does not list it", gpu.ErrLost),
			})
		}
	}
	return unreadable
}
