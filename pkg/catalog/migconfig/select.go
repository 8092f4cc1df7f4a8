// SPDX-License-Identifier: Apache-2.0

package migconfig

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Choice is the configuration of a GPU. The zero value is a GPU without MIG.
type Choice struct {
	// MIG is set if the GPU is cut into MIG devices.
	MIG bool
	// Devices are the MIG devices of the GPU, large ones first; nil if they are made on
	// demand.
	Devices []Devices
}

// Select returns the choice for each GPU of the node. A GPU that no entry concerns has
// no MIG, nor has one without MIG support if its entry is for all GPUs. GPUs are counted
// from 0 in order of the PCI address, as mig-parted does, and a GPU that does not answer
// counts. An entry whose filter no GPU of the node matches has no effect.
//
// The error for a configuration that is not valid on this node wraps [gpu.ErrInvalid].
// It wraps [gpu.ErrNotReady] if an index is used and the order of the GPUs is not known.
func (c *Config) Select(node gpu.Node) (map[gpu.PCIAddress]Choice, error) {
	order, known := order(node)
	choices := map[gpu.PCIAddress]Choice{}
	chosenBy := map[gpu.PCIAddress]int{}
	for i, e := range c.entries {
		invalid := func(format string, args ...any) error {
			return fmt.Errorf("MIG configuration %q, entry %d: %w: %s", c.Name, i+1, gpu.ErrInvalid, fmt.Sprintf(format, args...))
		}
		gpus := slices.DeleteFunc(slices.Clone(node.GPUs), func(g gpu.GPU) bool { return !e.matches(g) })
		if len(gpus) == 0 {
			continue
		}
		switch {
		case !e.all && !known:
			return nil, fmt.Errorf("MIG configuration %q, entry %d: %w: a GPU does not tell its PCI address, so the indices of the GPUs are not known", c.Name, i+1, gpu.ErrNotReady)
		case !e.all && slices.Max(e.indices) >= len(order):
			return nil, invalid("GPU %d, and the node has %d GPUs, counted from 0", slices.Max(e.indices), len(order))
		}
		for _, g := range gpus {
			if !e.all && !slices.Contains(e.indices, slices.Index(order, g.Address)) {
				continue
			}
			if other, chosen := chosenBy[g.Address]; chosen {
				return nil, invalid("the GPU at %s is of entry %d too", g.Address, other)
			}
			chosenBy[g.Address] = i + 1
			switch {
			case g.MIG.Capable:
				choices[g.Address] = Choice{MIG: e.mig, Devices: e.devices}
			case e.mig && !e.all:
				return nil, invalid("the GPU at %s has no MIG", g.Address)
			}
		}
	}
	return choices, nil
}

// matches reports whether the filters of the entry admit the GPU.
func (e entry) matches(g gpu.GPU) bool {
	return len(e.filters) == 0 || slices.ContainsFunc(e.filters, func(f filter) bool {
		return f.device == g.PCIDevice && (f.subsystem == nil || *f.subsystem == g.PCISubsystem)
	})
}

// order returns the addresses of all GPUs in order, and false if one is not known.
func order(node gpu.Node) (addresses []gpu.PCIAddress, known bool) {
	for _, g := range node.GPUs {
		addresses = append(addresses, g.Address)
	}
	for _, u := range node.Unreadable {
		if u.Address == nil {
			return nil, false
		}
		addresses = append(addresses, *u.Address)
	}
	slices.SortFunc(addresses, gpu.PCIAddress.Compare)
	return slices.Compact(addresses), true
}
