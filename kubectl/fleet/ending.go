// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// mostEnded bounds the pods of [Search.Ending].
const mostEnded = 3

// Ending returns the fewest pods whose end lets claims fit on a node, proven by the allocator. It
// returns nil if there is no such set of at most three pods, or if the search ends. mayEnd selects
// the pods. Of several sets it returns the first in order of the names.
func (s *Search) Ending(ctx context.Context, node string, mayEnd func(*corev1.Pod) bool, claims ...*resourceapi.ResourceClaim) ([]*corev1.Pod, error) {
	q := s.fleet.newAttempt(node, withoutAllocation(claims)...)
	checks, err := s.Check(ctx, node, q.claims...)
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(s.inTheWay(checks), func(p *corev1.Pod) bool { return !mayEnd(p) })
	for n := 1; n <= min(mostEnded, len(pods)); n++ {
		found := choose(pods, n, func(chosen []*corev1.Pod) bool {
			q.state = s.fleet.stateWithout(q.slices, chosen)
			results, err := s.allocate(ctx, q)
			return err == nil && results != nil
		}, func() bool { return ctx.Err() != nil || s.ended() })
		if found != nil || s.ended() {
			return found, ctx.Err()
		}
	}
	return nil, ctx.Err()
}

// inTheWay returns the pods with parts of GPUs whose devices only miss a free part. They are in
// order of their names.
func (s *Search) inTheWay(checks []RequestCheck) []*corev1.Pod {
	held := map[DeviceID]bool{}
	for _, c := range checks {
		for _, d := range c.Devices {
			if slices.Equal(d.Missing, []Condition{ConditionHolders}) {
				held[d.Device.ID] = true
			}
		}
	}
	pods := map[*corev1.Pod]bool{}
	for id, holders := range s.fleet.holders {
		name := NameOf(id.Device)
		for device := range held {
			other := NameOf(device.Device)
			if id == device || id.Driver == device.Driver && id.Pool == device.Pool && name.OnGPU() && other.OnGPU() && name.Address == other.Address {
				for _, h := range holders {
					for _, pod := range h.Pods {
						pods[pod] = true
					}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// stateWithout returns the allocations of devices after the end of some pods. A claim ends with
// the last of the pods that use it.
func (f *Fleet) stateWithout(all []*resourceapi.ResourceSlice, pods []*corev1.Pod) structured.AllocatedState {
	ends := func(h Holder) bool {
		return len(h.Pods) > 0 && len(h.Pods) == len(h.Claim.Status.ReservedFor) &&
			!slices.ContainsFunc(h.Pods, func(p *corev1.Pod) bool { return !slices.Contains(pods, p) })
	}
	state := NewState()
	for _, id := range slices.SortedFunc(maps.Keys(pooled(all)), DeviceID.compare) {
		for _, h := range f.holders[id] {
			if !ends(h) {
				Count(state, h.Result)
			}
		}
	}
	return state
}

// choose returns the first n of the pods, in their order, that are right. It returns nil if none
// are, or if ended returns true.
func choose(pods []*corev1.Pod, n int, right func([]*corev1.Pod) bool, ended func() bool) []*corev1.Pod {
	chosen := make([]*corev1.Pod, 0, n)
	var from func(int) bool
	from = func(i int) bool {
		if len(chosen) == n {
			return right(chosen)
		}
		for ; i < len(pods) && !ended(); i++ {
			chosen = append(chosen, pods[i])
			if from(i + 1) {
				return true
			}
			chosen = chosen[:len(chosen)-1]
		}
		return false
	}
	if !from(0) {
		return nil
	}
	return chosen
}

// LargestMemory returns the largest amount of memory with which a claim fits on a node. It is in
// whole MiB, and proven by the allocator. It returns zero if no amount fits, the claim has several
// requests or requests no memory, or the search ends.
func (s *Search) LargestMemory(ctx context.Context, node string, claim *resourceapi.ResourceClaim) resource.Quantity {
	const mebi = 1 << 20
	own := claim.DeepCopy()
	if len(own.Spec.Devices.Requests) != 1 || own.Spec.Devices.Requests[0].Exactly == nil || own.Spec.Devices.Requests[0].Exactly.Capacity == nil {
		return resource.Quantity{}
	}
	amounts := own.Spec.Devices.Requests[0].Exactly.Capacity.Requests
	wanted, requested := amounts[v1alpha1.CapacityMemory]
	if !requested {
		return resource.Quantity{}
	}
	fits := int64(0)
	for tooMuch := (wanted.Value() + mebi - 1) / mebi; tooMuch-fits > 1 && !s.ended(); {
		middle := (fits + tooMuch) / 2
		amounts[v1alpha1.CapacityMemory] = *resource.NewQuantity(middle*mebi, resource.BinarySI)
		results, err := s.allocate(ctx, s.fleet.newAttempt(node, own))
		if err == nil && results != nil {
			fits = middle
		} else {
			tooMuch = middle
		}
	}
	if s.ended() {
		return resource.Quantity{}
	}
	return *resource.NewQuantity(fits*mebi, resource.BinarySI)
}
