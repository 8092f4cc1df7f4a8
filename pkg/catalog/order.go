// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Taken maps the names of devices to the memory in bytes that claims take of them; more
// than the device has for a device that belongs to one claim.
type Taken map[string]uint64

// order moves devices without room to the end of the node's slice. The scheduler
// considers devices in their order, and evaluates selectors and capacities of each
// shareable device before it finds that it is full: in a fleet in use, the full devices
// would cost more than all others. A node can also have dozens of MIG devices.
//
// A pool of several slices keeps its order: a change of two slices makes the pool unusable
// until both are written.
func (c Catalog) order(pages []resourceslice.Slice) {
	if len(pages) != 1 {
		return
	}
	slices.SortStableFunc(pages[0].Devices, func(a, b resourceapi.Device) int { return c.full(a) - c.full(b) })
}

// full returns 1 for a device with less memory left than the smallest share, and 0 for any
// other.
func (c Catalog) full(d resourceapi.Device) int {
	memory := d.Capacity[v1alpha1.CapacityMemory]
	least := uint64(MemoryStep)
	if p := memory.RequestPolicy; p != nil && p.ValidRange != nil && p.ValidRange.Min != nil {
		least = uint64(p.ValidRange.Min.Value())
	}
	if c.Taken[d.Name] > 0 && c.Taken[d.Name]+least > uint64(memory.Value.Value()) {
		return 1
	}
	return 0
}
