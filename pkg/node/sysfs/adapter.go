// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// networkClass is the PCI class of network controllers, Ethernet and InfiniBand alike.
const networkClass = "0x02"

// adapter is a network adapter with its path from the PCIe root down.
type adapter struct {
	gpu.NIC
	path []string
}

// adapters returns the network adapters of the node, in order of the address. It leaves
// out virtual functions: they are handed to pods one by one. Sources:
// sys/bus/pci/devices/*/{class,physfn,infiniband}.
func (r Root) adapters() ([]adapter, error) {
	devices, err := os.ReadDir(r.path("sys", "bus", "pci", "devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []adapter
	errs := []error{err}
	for _, device := range devices {
		a, is, err := r.adapter(device.Name())
		if err != nil {
			errs = append(errs, fmt.Errorf("network adapter %s: %w", device.Name(), err))
		} else if is {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b adapter) int { return a.Address.Compare(b.Address) })
	return found, errors.Join(errs...)
}

// adapter returns the PCI device of a name if it is a network adapter.
func (r Root) adapter(device string) (adapter, bool, error) {
	class, err := r.pciFile(device, "class")
	if err != nil || !strings.HasPrefix(class, networkClass) {
		return adapter{}, false, err
	}
	if _, err := os.Lstat(r.path("sys", "bus", "pci", "devices", device, "physfn")); !errors.Is(err, fs.ErrNotExist) {
		return adapter{}, false, err
	}
	var a adapter
	if a.Address, err = gpu.ParsePCIAddress(device); err != nil {
		return adapter{}, false, err
	}
	if a.path, err = r.pciPath(a.Address); err != nil {
		return adapter{}, false, err
	}
	rdma, err := os.ReadDir(r.path("sys", "bus", "pci", "devices", device, "infiniband"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return adapter{}, false, err
	}
	for _, d := range rdma {
		a.RDMADevices = append(a.RDMADevices, d.Name())
	}
	return a, true, nil
}

// nearest returns the network adapters that have the longest path in common with a GPU:
// those on its PCIe switch, or else those below its root port. It returns none that has only
// the PCIe root in common: on a flat bus, as in virtual machines, that is every adapter.
func (r Root) nearest(adapters []adapter, address gpu.PCIAddress) ([]gpu.NIC, error) {
	path, err := r.pciPath(address)
	if err != nil {
		return nil, err
	}
	var near []gpu.NIC
	const rootAndPort = 2
	most := rootAndPort
	for _, a := range adapters {
		switch n := common(a.path, path); {
		case n > most:
			near, most = []gpu.NIC{a.NIC}, n
		case n == most:
			near = append(near, a.NIC)
		}
	}
	return near, nil
}

// pciPath returns the PCIe root, the bridges and the address of a PCI device. Source: the
// link sys/bus/pci/devices/*.
func (r Root) pciPath(address gpu.PCIAddress) ([]string, error) {
	link, err := os.Readlink(r.path("sys", "bus", "pci", "devices", address.String()))
	if err != nil {
		return nil, err
	}
	parts := strings.Split(filepath.ToSlash(link), "/")
	root := slices.IndexFunc(parts, func(p string) bool { return strings.HasPrefix(p, "pci") })
	if root < 0 {
		return nil, fmt.Errorf("%w: the link %s has no PCIe root", gpu.ErrCorrupt, link)
	}
	return parts[root:], nil
}

// common returns the length of the longest common start of two paths.
func common(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
