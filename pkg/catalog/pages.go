// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// devicesPerSlice is the API's limit for a slice in which a device has a taint or
// counters. It applies to all slices, so that any device can get a taint without
// moving others to another slice.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// group holds the devices of one GPU, and its counters if it has any.
type group struct {
	whole     []resourceapi.Device // none if the GPU is offered in parts only
	parts     []resourceapi.Device
	fractions []resourceapi.Device // of which claims take units, such as time slices
	counters  []resourceapi.CounterSet
}

func (g group) size() int { return len(g.whole) + len(g.parts) + len(g.fractions) }

// paginate distributes the devices of all GPUs over as few slices as possible. The
// devices of one GPU are in one slice if they fit, so that a change of a GPU changes
// one slice. Counters have slices of their own, at the end.
//
// The order matters, because the scheduler takes the first device that fits:
//
//   - whole GPUs in ascending order;
//   - time slices and seats, then parts, in descending order of their GPUs, so that they
//     and whole GPUs are allocated from opposite ends. Parts are after time slices,
//     because there are many of them and requests for other devices skip each one;
//   - devices of the whole node, which few claims request.
func paginate(groups []group, others []resourceapi.Device) []resourceslice.Slice {
	var pages []resourceslice.Slice
	var page []group
	size := 0
	flush := func() {
		pages = append(pages, fill(page)...)
		page, size = nil, 0
	}
	var counters []resourceapi.CounterSet
	for _, g := range groups {
		if size+g.size() > devicesPerSlice {
			flush()
		}
		page, size = append(page, g), size+g.size()
		counters = append(counters, g.counters...)
	}
	flush()
	pages = attach(pages, others)
	for sets := range slices.Chunk(counters, resourceapi.ResourceSliceMaxCounterSets) {
		pages = append(pages, resourceslice.Slice{SharedCounters: sets})
	}
	if len(pages) == 0 {
		return []resourceslice.Slice{{}}
	}
	return pages
}

// attach adds devices to the last page, or as a new page if the last one is full.
func attach(pages []resourceslice.Slice, devices []resourceapi.Device) []resourceslice.Slice {
	if len(devices) == 0 {
		return pages
	}
	if last := len(pages) - 1; last >= 0 && len(pages[last].Devices)+len(devices) <= devicesPerSlice {
		pages[last].Devices = slices.Concat(pages[last].Devices, devices)
		return pages
	}
	return append(pages, resourceslice.Slice{Devices: devices})
}

// fill returns one slice with the groups, or several slices for a single group that
// is too large.
func fill(page []group) []resourceslice.Slice {
	var devices []resourceapi.Device
	for _, g := range page {
		devices = append(devices, g.whole...)
	}
	for _, g := range slices.Backward(page) {
		devices = append(devices, g.fractions...)
	}
	for _, g := range slices.Backward(page) {
		devices = append(devices, g.parts...)
	}
	var filled []resourceslice.Slice
	for chunk := range slices.Chunk(devices, devicesPerSlice) {
		filled = append(filled, resourceslice.Slice{Devices: chunk})
	}
	return filled
}
