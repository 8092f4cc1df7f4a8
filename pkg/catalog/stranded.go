// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"math"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Stranded is the part of a GPU in use that is free and that no further claim can get.
type Stranded struct {
	// Memory is what claims do not take, less what further claims for one device each can get, the
	// largest first. It is zero in time slices, whose claims use all memory.
	Memory resource.Quantity
	// Slices are compute slices of a GPU with MIG devices in use. They are the most that its MIG devices
	// can have together, less those in use and the most that further ones can have.
	Slices int64
}

// StrandedOf returns the stranded part of each published GPU, by the name of its device. Taken has an entry
// for each held device. Devices with taints count as any others.
func StrandedOf(pages []resourceslice.Slice, taken Taken) map[string]Stranded {
	left, byGPU := countersLeft{}, map[string][]candidate{}
	for _, page := range pages {
		for _, set := range page.SharedCounters {
			for name, counter := range set.Counters {
				left[[2]string{set.Name, name}] += counter.Value.Value()
			}
		}
		for i := range page.Devices {
			name, err := kind.Parse(page.Devices[i].Name)
			if err != nil || !name.OnGPU() {
				continue
			}
			d := candidate{&page.Devices[i], name}
			if _, held := taken[d.Name]; held {
				left.take(d)
			}
			whole := kind.Whole(name.Address).String()
			byGPU[whole] = append(byGPU[whole], d)
		}
	}
	all := map[string]Stranded{}
	for whole, devices := range byGPU {
		all[whole] = left.stranded(devices, taken)
	}
	return all
}

// candidate is a published device of a GPU.
type candidate struct {
	*resourceapi.Device
	name kind.Name
}

// countersLeft has the rest of each counter, by its set and name. It can be less than zero until a page
// with the counters is added.
type countersLeft map[[2]string]int64

// has reports whether enough is left for a device.
func (c countersLeft) has(d candidate) bool {
	for _, consumed := range d.ConsumesCounters {
		for name, counter := range consumed.Counters {
			if counter.Value.Value() > c[[2]string{consumed.CounterSet, name}] {
				return false
			}
		}
	}
	return true
}

func (c countersLeft) take(d candidate) {
	for _, consumed := range d.ConsumesCounters {
		for name, counter := range consumed.Counters {
			c[[2]string{consumed.CounterSet, name}] -= counter.Value.Value()
		}
	}
}

// stranded returns the stranded part of the GPU with the devices.
func (c countersLeft) stranded(devices []candidate, taken Taken) Stranded {
	var whole, parts, reached, slicesHeld int64
	var partitions, open []kind.Name
	var others []candidate
	isUsed := false
	for _, d := range devices {
		memory := d.amount(v1alpha1.CapacityMemory)
		if d.name.IsPartition() {
			parts, partitions = parts+memory, append(partitions, d.name)
		} else if d.name == kind.Whole(d.name.Address) {
			whole = memory
		}
		take, held := taken[d.Name]
		switch isUsed = isUsed || held; {
		case held && d.name.Kind.Takes() == kind.TakesSlots:
			return Stranded{}
		case held:
			reached += d.reach(take)
			slicesHeld += int64(d.name.Profile.Slices)
		case c.has(d):
			others = append(others, d)
			if d.name.IsPartition() {
				open = append(open, d.name)
			}
		}
	}
	if !isUsed {
		return Stranded{}
	}
	slices.SortStableFunc(others, func(a, b candidate) int {
		return cmp.Compare(b.amount(v1alpha1.CapacityMemory), a.amount(v1alpha1.CapacityMemory))
	})
	for _, d := range others {
		if c.has(d) {
			c.take(d)
			reached += d.reach(Take{})
		}
	}
	s := Stranded{Memory: *resource.NewQuantity(max(0, cmp.Or(whole, parts)-reached), resource.BinarySI)}
	if slicesHeld > 0 {
		s.Slices = max(0, MostSlices(partitions, partitions)-slicesHeld-MostSlices(open, partitions))
	}
	return s
}

// amount returns a capacity of the device.
func (d candidate) amount(name resourceapi.QualifiedName) int64 {
	capacity := d.Capacity[name]
	return capacity.Value.Value()
}

// reach returns the memory that claims take of a device, and what further claims can get if it has the counters.
func (d candidate) reach(take Take) int64 {
	unit, units := int64(1), d.name.Kind.Units().Capacity
	if units != "" {
		unit = d.amount(v1alpha1.CapacityMemory)
	}
	name := cmp.Or(units, v1alpha1.CapacityMemory)
	all, taken := d.amount(name)*unit, int64(take.Bytes)
	if p := d.Capacity[name].RequestPolicy; !take.Whole && p != nil && p.ValidRange != nil && all-taken < p.ValidRange.Min.Value()*unit {
		return taken
	}
	return all
}

// MostSlices returns the most compute slices of placements that can exist together. Their
// names have the first memory slice of each, and not their number, which follows from all
// published placements of the GPU.
func MostSlices(placements, published []kind.Name) int64 {
	unit := memorySlice(published)
	end := func(n kind.Name) int { return n.Start + max(1, int(math.Round(float64(n.Profile.MemoryGB)/unit))) }
	all := slices.SortedFunc(slices.Values(placements), func(a, b kind.Name) int { return cmp.Compare(end(a), end(b)) })
	// most[i] is the result for the first i placements.
	most := make([]int64, len(all)+1)
	for i, n := range all {
		before := i
		for before > 0 && end(all[before-1]) > n.Start {
			before--
		}
		most[i+1] = max(most[i], most[before]+int64(n.Profile.Slices))
	}
	return most[len(all)]
}

// memorySlice returns the gigabytes of a memory slice. Placements of a profile are at least their
// size apart, so the profile whose placements are the closest shows it. Without two placements
// of a profile, it is the memory of a compute slice, of the profile with the least.
func memorySlice(published []kind.Name) float64 {
	closest, least := 0.0, math.Inf(1)
	for i, n := range published {
		memory := float64(n.Profile.MemoryGB)
		least = min(least, memory/float64(n.Profile.Slices))
		for _, other := range published[:i] {
			if apart := max(n.Start-other.Start, other.Start-n.Start); other.Profile == n.Profile && apart > 0 {
				closest = max(closest, memory/float64(apart))
			}
		}
	}
	return cmp.Or(closest, least)
}
