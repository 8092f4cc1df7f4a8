// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// counters are what is left of the counters of a pool, by their set and name.
type counters map[[2]string]resource.Quantity

func newCounters(all []*resourceapi.ResourceSlice) counters {
	c := counters{}
	for _, slice := range all {
		for _, set := range slice.Spec.SharedCounters {
			for name, counter := range set.Counters {
				c[[2]string{set.Name, name}] = counter.Value.DeepCopy()
			}
		}
	}
	return c
}

// has reports whether enough is left for a device.
func (c counters) has(d *resourceapi.Device) bool {
	return !slices.ContainsFunc(d.ConsumesCounters, func(consumed resourceapi.DeviceCounterConsumption) bool {
		for name, counter := range consumed.Counters {
			left := c[[2]string{consumed.CounterSet, name}]
			if counter.Value.Cmp(left) > 0 {
				return true
			}
		}
		return false
	})
}

func (c counters) take(d *resourceapi.Device) {
	for _, consumed := range d.ConsumesCounters {
		for name, counter := range consumed.Counters {
			key := [2]string{consumed.CounterSet, name}
			left := c[key]
			left.Sub(counter.Value)
			c[key] = left
		}
	}
}

// stranded returns the memory of a GPU in use in part that no further claim can get: what is not promised,
// less what claims for one device each can still get there, the largest first. It is zero in time slices,
// whose claims use all memory, and counts devices with taints as any others. The caller's counters have
// what is left beside all holders.
func stranded(g GPU, left counters) resource.Quantity {
	free := g.Memory.Total.DeepCopy()
	free.Sub(g.Memory.Promised)
	isUsed := false
	var others []Device
	for _, d := range g.Devices {
		switch isUsed = isUsed || d.isHeld(); {
		case d.isHeld() && d.Kind.Takes() == kind.TakesSlots:
			return resource.Quantity{}
		case d.isHeld():
			free.Sub(d.rest())
		case d.Published != nil:
			others = append(others, d)
		}
	}
	slices.SortStableFunc(others, func(a, b Device) int {
		first, second := a.capacity(v1alpha1.CapacityMemory), b.capacity(v1alpha1.CapacityMemory)
		return second.Cmp(first)
	})
	for _, d := range others {
		if left.has(d.Published) {
			left.take(d.Published)
			free.Sub(d.rest())
		}
	}
	if !isUsed || free.Sign() < 0 {
		return resource.Quantity{}
	}
	return free
}

// rest returns the memory of a device that further claims can get if it has the counters.
func (d Device) rest() resource.Quantity {
	if d.Published == nil {
		return resource.Quantity{}
	}
	isShared := ptr.Deref(d.Published.AllowMultipleAllocations, false)
	name := cmp.Or(d.Kind.Units().Capacity, v1alpha1.CapacityMemory)
	capacity := d.Published.Capacity[name]
	rest := capacity.Value.DeepCopy()
	for _, h := range d.Holders {
		switch {
		case h.Admin():
		case !isShared:
			return resource.Quantity{}
		default:
			rest.Sub(h.Result.ConsumedCapacity[name])
		}
	}
	if policy := capacity.RequestPolicy; policy != nil && policy.ValidRange != nil && rest.Cmp(*policy.ValidRange.Min) < 0 {
		return resource.Quantity{}
	}
	if name != v1alpha1.CapacityMemory {
		each := d.capacity(v1alpha1.CapacityMemory)
		return *resource.NewQuantity(rest.Value()*each.Value(), resource.BinarySI)
	}
	return rest
}
