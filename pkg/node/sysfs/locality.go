// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/cpuset"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Locate returns node with the place of each GPU in the machine filled in: its NUMA nodes
// and CPUs, its PCIe root and the nearest network adapters. The node is valid even if the
// error is not nil: the error joins the reasons why facts of some GPUs are absent.
func (r Root) Locate(node gpu.Node) (gpu.Node, error) {
	node.GPUs = slices.Clone(node.GPUs)
	adapters, err := r.adapters()
	errs := []error{err}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		var err error
		if g.NUMANode, err = r.numaNode(g.Address); err != nil {
			errs = append(errs, fmt.Errorf("NUMA node of GPU %s: %w", g.Address, err))
		}
		if g.NUMANode != nil {
			if g.CPUs, err = r.cpus(*g.NUMANode); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("CPUs of GPU %s: %w", g.Address, err))
			}
			if g.NearNUMANodes, err = r.nearNUMANodes(*g.NUMANode); err != nil {
				errs = append(errs, fmt.Errorf("near NUMA nodes of GPU %s: %w", g.Address, err))
			}
		}
		if g.PCIeRoot, err = r.pcieRoot(g.Address); err != nil {
			errs = append(errs, fmt.Errorf("PCIe root of GPU %s: %w", g.Address, err))
			continue
		}
		if g.PCIeSwitch, err = r.pcieSwitch(g.Address); err != nil {
			errs = append(errs, fmt.Errorf("PCIe switch of GPU %s: %w", g.Address, err))
		}
		if g.NICs, err = r.nearest(adapters, g.Address); err != nil {
			errs = append(errs, fmt.Errorf("network adapters of GPU %s: %w", g.Address, err))
		}
	}
	return node, errors.Join(errs...)
}

// numaNode returns the NUMA node whose CPUs are nearest to a PCI device. If the platform does
// not report one, as in most virtual machines, it is the only node that has CPUs, or nil if
// there are several. Sources: sys/bus/pci/devices/*/numa_node, sys/devices/system/node/has_cpu.
//
// Upstream's deviceattribute.GetNUMANodeAttributeByPCIBusID reads the same file, but
// its error does not distinguish a device without NUMA affinity from a missing one.
func (r Root) numaNode(address gpu.PCIAddress) (*int, error) {
	data, err := os.ReadFile(r.path("sys", "bus", "pci", "devices", address.String(), "numa_node"))
	if err != nil {
		return nil, missing(err)
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	if node < 0 || r.withoutCPUs(node) {
		return r.onlyNUMANode()
	}
	return &node, nil
}

// onlyNUMANode returns the NUMA node that has all CPUs; nil if there are several.
func (r Root) onlyNUMANode() (*int, error) {
	data, err := os.ReadFile(r.path("sys", "devices", "system", "node", "has_cpu"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without NUMA
	}
	if err != nil {
		return nil, err
	}
	nodes, err := cpuset.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	if nodes.Size() != 1 {
		return nil, nil
	}
	return &nodes.List()[0], nil
}

// withoutCPUs reports whether a NUMA node has memory but no CPUs. An example is the
// node of a GB200's own memory. Pods cannot be aligned with such a node.
func (r Root) withoutCPUs(node int) bool {
	cpus, err := r.cpus(node)
	return err == nil && cpus == ""
}

// cpus returns the CPUs of a NUMA node in the kernel's list format, "" if there are
// none. Source: sys/devices/system/node/node*/cpulist.
func (r Root) cpus(node int) (string, error) {
	data, err := os.ReadFile(r.path("sys", "devices", "system", "node", fmt.Sprintf("node%d", node), "cpulist"))
	return strings.TrimSpace(string(data)), err
}

// nearNUMANodes returns a NUMA node and then the nodes of its socket at the least distance.
// Upstream's helper defines this list, because the attribute matches only if all drivers
// write it in the same way. But it counts nodes without CPUs, such as the memory of a GPU,
// as nodes of the socket. Source: sys/devices/system/node/node*/distance.
func (r Root) nearNUMANodes(node int) ([]int, error) {
	attribute, err := deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ListAttribute, deviceattribute.WithFSFromRoot(r.path("sys")))
	if err != nil {
		return nil, err
	}
	var near []int
	for _, value := range attribute.Value.IntValues {
		if n := int(value); n == node || !r.withoutCPUs(n) {
			near = append(near, n)
		}
	}
	return near, nil
}

// pcieRoot returns the root complex of a PCI device. It uses upstream's helper,
// because the attribute matches only if all drivers write it in the same way.
// Source: the link sys/bus/pci/devices/*.
func (r Root) pcieRoot(address gpu.PCIAddress) (string, error) {
	if address.Domain > 0xffff {
		return "", fmt.Errorf("%w: resource.kubernetes.io/pcieRoot has no form for PCI domains of more than four digits", gpu.ErrNotSupported)
	}
	attribute, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(address.String(), deviceattribute.WithFSFromRoot(r.path("sys")))
	if err != nil {
		return "", missing(err)
	}
	return *attribute.Value.StringValue, nil
}

// pcieSwitch returns the PCIe switches of a device as [gpu.GPU] has them; "" without one.
// Below the root port, each switch is two bridges: its upstream port, and the downstream
// port that leads to the device. Source: the link sys/bus/pci/devices/*.
func (r Root) pcieSwitch(address gpu.PCIAddress) (string, error) {
	path, err := r.pciPath(address)
	if err != nil {
		return "", missing(err)
	}
	const rootAndPort, portAndDevice = 2, 2
	if len(path) < rootAndPort+1+portAndDevice {
		return "", nil
	}
	outermost, own := path[rootAndPort], path[len(path)-portAndDevice-1]
	if outermost == own {
		return own, nil
	}
	return outermost + "/" + own, nil
}

// missing wraps the error with [gpu.ErrNotFound] if a file does not exist.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", gpu.ErrNotFound, err)
	}
	return err
}
