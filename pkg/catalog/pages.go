// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// devicesPerSlice is what a slice may hold once one of its devices has a taint
// or counters. Keeping to it from the start lets any device get a taint without
// moving the others to another slice.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// group is the devices of one GPU, with its counters where it has any.
type group struct {
	whole    resourceapi.Device
	parts    []resourceapi.Device
	slots    []resourceapi.Device // its time slices, if it has them
	counters []resourceapi.CounterSet
}

func (g group) size() int { return 1 + len(g.parts) + len(g.slots) }

// pages puts the devices of all GPUs into as few slices as the API allows while
// one GPU's are in one slice, if they fit, so that a change of a GPU changes
// one slice. Counters have slices of their own, at the end.
//
// The scheduler takes the first device that fits. GPUs come first, from the first
// one on, then time slices and parts, from the last GPU's on: whole GPUs are
// taken from the opposite end. Parts, of which there are many, are last: who asks
// for something else finds it before them. After all of them come the devices of
// no GPU in particular, which few ask for.
func pages(groups []group, others []resourceapi.Device) []resourceslice.Slice {
	var pages []resourceslice.Slice
	var page []group
	size := 0
	turn := func() {
		pages = append(pages, fill(page)...)
		page, size = nil, 0
	}
	var counters []resourceapi.CounterSet
	for _, g := range groups {
		if size+g.size() > devicesPerSlice {
			turn()
		}
		page, size = append(page, g), size+g.size()
		counters = append(counters, g.counters...)
	}
	turn()
	pages = attach(pages, others)
	for sets := range slices.Chunk(counters, resourceapi.ResourceSliceMaxCounterSets) {
		pages = append(pages, resourceslice.Slice{SharedCounters: sets})
	}
	if len(pages) == 0 {
		return []resourceslice.Slice{{}}
	}
	return pages
}

// attach adds devices to the last page, or after it if that is full.
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

// fill makes a slice of the groups, or several of a single one that is too
// large.
func fill(page []group) []resourceslice.Slice {
	var devices []resourceapi.Device
	for _, g := range page {
		devices = append(devices, g.whole)
	}
	for _, g := range slices.Backward(page) {
		devices = append(devices, g.slots...)
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
