// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ErrPoolRefused is the problem of a pool whose slices contradict each other: the scheduler
// allocates none of its devices until its driver publishes it again.
var ErrPoolRefused = errors.New("the scheduler refuses the pool")

// unusable returns an error if the scheduler allocates no device of a pool. Otherwise it
// returns nil. It wraps [gpu.ErrNotReady] if slices are missing, and [ErrPoolRefused]
// otherwise.
func unusable(all []*resourceapi.ResourceSlice) error {
	broken := unusablePools(all)
	for _, id := range slices.SortedFunc(maps.Keys(broken), func(a, b pool) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name))
	}) {
		return broken[id]
	}
	return nil
}

// unusablePools returns the errors of [unusable] by the pool.
func unusablePools(all []*resourceapi.ResourceSlice) map[pool]error {
	broken := map[pool]error{}
	for id, p := range newestPools(all) {
		if !p.complete() {
			broken[id] = fmt.Errorf("pool %s of %s: %w: %d of %d slices are published", id.name, id.driver, gpu.ErrNotReady, len(p.slices), p.slices[0].Spec.Pool.ResourceSliceCount)
		} else if reason := p.contradiction(); reason != "" {
			broken[id] = fmt.Errorf("pool %s of %s: %w: %s", id.name, id.driver, ErrPoolRefused, reason)
		}
	}
	return broken
}

// contradiction returns the reason why the scheduler refuses a pool; "" if it does not. The
// allocator has the same checks, and does not report the cause.
func (p poolSlices) contradiction() string {
	names, sets := map[string]bool{}, map[string]map[string]resourceapi.Counter{}
	for _, slice := range p.slices {
		for _, set := range slice.Spec.SharedCounters {
			if sets[set.Name] != nil {
				return fmt.Sprintf("it has the counter set %s twice", set.Name)
			}
			sets[set.Name] = maps.Clone(set.Counters)
			if sets[set.Name] == nil {
				sets[set.Name] = map[string]resourceapi.Counter{}
			}
		}
		for _, device := range slice.Spec.Devices {
			if names[device.Name] {
				return fmt.Sprintf("it has the device %s twice", device.Name)
			}
			names[device.Name] = true
		}
	}
	for _, slice := range p.slices {
		for _, device := range slice.Spec.Devices {
			if reason := missingCounter(device, sets); reason != "" {
				return reason
			}
		}
	}
	return ""
}

func missingCounter(device resourceapi.Device, sets map[string]map[string]resourceapi.Counter) string {
	for _, consumed := range device.ConsumesCounters {
		set, found := sets[consumed.CounterSet]
		if !found {
			return fmt.Sprintf("the device %s consumes counters of the set %s, which it lacks", device.Name, consumed.CounterSet)
		}
		for _, name := range slices.Sorted(maps.Keys(consumed.Counters)) {
			if _, found := set[name]; !found {
				return fmt.Sprintf("the device %s consumes the counter %s, which the set %s lacks", device.Name, name, consumed.CounterSet)
			}
		}
	}
	return ""
}
