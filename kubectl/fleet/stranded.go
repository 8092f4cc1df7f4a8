// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// stranded returns the stranded part of each GPU of a pool, by the names of their devices.
func stranded(pages []resourceslice.Slice, devices []Device) map[string]catalog.Stranded {
	taken := catalog.Taken{}
	for _, d := range devices {
		for _, h := range d.Holders {
			if !h.Admin() {
				memory, _ := d.Promised(h)
				taken.Add(d.ID.Device, !h.Shared(), uint64(memory.Value()))
			}
		}
	}
	return catalog.StrandedOf(pages, taken)
}
