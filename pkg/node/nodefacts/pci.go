// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// gpu returns the facts of the PCI device at the address.
func (r Root) gpu(address gpu.PCIAddress) agentv1.GPU {
	device := filepath.Join("sys/bus/pci/devices", address.String())
	return agentv1.GPU{
		Address:      address.String(),
		LinkWidth:    readFile(r, filepath.Join(device, "current_link_width"), number),
		MaxLinkWidth: readFile(r, filepath.Join(device, "max_link_width"), number),
		LinkSpeed:    readFile(r, filepath.Join(device, "current_link_speed"), text),
		MaxLinkSpeed: readFile(r, filepath.Join(device, "max_link_speed"), text),
		IOMMUType:    readFile(r, filepath.Join(device, "iommu_group/type"), text),
		ACSRedirect:  r.acsRedirect(device),
	}
}

// acsRedirect returns the ports of PCIe switches above a device that redirect the requests
// of peers. It leaves out the root port: requests between its devices do not pass it.
func (r Root) acsRedirect(device string) agentv1.Fact[[]string] {
	source := "/" + device + "/../config"
	link, err := os.Readlink(filepath.Join(string(r), device))
	if err != nil {
		return factOf[[]string](source, nil, err)
	}
	path := strings.Split(filepath.ToSlash(link), "/")
	root := slices.IndexFunc(path, func(name string) bool { return strings.HasPrefix(name, "pci") })
	if root < 0 {
		return factOf[[]string](source, nil, fmt.Errorf("%w: the link %s has no PCIe root", gpu.ErrCorrupt, link))
	}
	var redirect []string
	folder := filepath.Dir(filepath.Join("sys/bus/pci/devices", link))
	for i := len(path) - 2; i > root+1; i-- {
		config, err := os.ReadFile(filepath.Join(string(r), folder, "config"))
		on := false
		if err == nil {
			on, err = redirects(config)
		}
		if err != nil {
			return factOf[[]string](source, nil, err)
		}
		if on {
			redirect = append(redirect, path[i])
		}
		folder = filepath.Dir(folder)
	}
	return factOf(source, redirect, nil)
}

// The extended capabilities of a PCIe device: a list that begins behind the 256 bytes of
// PCI. A header has the identifier in its lowest 16 bits, and the offset of the next
// capability in its highest 12.
const (
	firstCapability = 0x100
	acsCapability   = 0x000d
	// acsControl is the offset of the control register in the capability.
	acsControl = 6
	// acsRequestRedirect and acsCompletionRedirect send requests and completions between
	// devices of a switch through the root complex.
	acsRequestRedirect, acsCompletionRedirect = 1 << 2, 1 << 3
)

// redirects reports whether ACS of a port redirects requests of peers. config is the
// configuration space of the port.
func redirects(config []byte) (bool, error) {
	if len(config) <= firstCapability {
		return false, fmt.Errorf("%w to read more than %d bytes of the configuration space", gpu.ErrPermission, len(config))
	}
	for at, steps := firstCapability, 0; at >= firstCapability && at+8 <= len(config) && steps < len(config)/8; steps++ {
		header := binary.LittleEndian.Uint32(config[at:])
		if header&0xffff == acsCapability {
			return binary.LittleEndian.Uint16(config[at+acsControl:])&(acsRequestRedirect|acsCompletionRedirect) != 0, nil
		}
		at = int(header >> 20)
	}
	return false, nil
}
