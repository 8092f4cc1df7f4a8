// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Taken maps the names of devices to what claims take of them.
type Taken map[string]Take

// Take is the memory that claims take of a device.
type Take struct {
	// Whole is set if the device belongs to one claim.
	Whole bool
	Bytes uint64
}

// Add adds what a claim takes of a device.
func (t Taken) Add(device string, whole bool, bytes uint64) {
	take := t[device]
	t[device] = Take{Whole: take.Whole || whole, Bytes: take.Bytes + bytes}
}

// order puts devices in use that have room first and devices without room last. Shares
// then fill GPUs in use, and whole GPUs stay free.
//
// The scheduler considers devices in their order. Before it finds that a shareable device
// is full, it evaluates its selectors and capacities; and before it takes a free shareable
// one, it passes all shares of the cluster. A device in use that has room costs neither.
//
// A pool of several slices keeps its order: a change of two slices makes the pool unusable
// until both are written.
func (c Catalog) order(pages []resourceslice.Slice) {
	if len(pages) != 1 {
		return
	}
	slices.SortStableFunc(pages[0].Devices, func(a, b resourceapi.Device) int { return int(c.rank(a) - c.rank(b)) })
}

// rank is the place of a device among those of its node.
type rank int

const (
	partlyUsed rank = iota
	free
	// full is a device with less memory left than the smallest share.
	full
)

func (c Catalog) rank(d resourceapi.Device) rank {
	memory := d.Capacity[v1alpha1.CapacityMemory]
	least := uint64(MemoryStep)
	if p := memory.RequestPolicy; p != nil && p.ValidRange != nil && p.ValidRange.Min != nil {
		least = uint64(p.ValidRange.Min.Value())
	}
	switch taken := c.inputs.Taken[d.Name]; {
	case taken == Take{}:
		return free
	case taken.Whole || taken.Bytes+least > uint64(memory.Value.Value()):
		return full
	default:
		return partlyUsed
	}
}
