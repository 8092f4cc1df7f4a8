// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Verdict is whether claims fit on a node, and how near they are to that.
type Verdict struct {
	Node string
	// Allocations has one for each claim; nil if they do not fit.
	Allocations []resourceapi.AllocationResult
	// Missing are the conditions without which the claims would fit; nil if they fit, or
	// if nothing would help because the node has too few devices.
	Missing []Condition
	// Excluded are the reasons, apart from free devices, why the pod cannot run on the node,
	// a sentence each. Its devices are then not searched.
	Excluded []string
	// Problem is set if the node's devices cannot be searched: the search does not end, the
	// allocator refuses the claims, or a pool is incomplete. It wraps one of the sentinel
	// errors.
	Problem error

	// distance orders verdicts: 0 if the claims fit.
	distance int
}

// Fits reports whether the claims fit.
func (v Verdict) Fits() bool { return v.Allocations != nil }

// misses are the sets of conditions that are dropped to find the nearest miss, the nearest
// first: conditions that end with other claims, then taints, then conditions of the claim.
func misses() [][]Condition {
	return [][]Condition{
		{ConditionHolders},
		{ConditionTaints},
		{ConditionTaints, ConditionHolders},
		{ConditionConstraints},
		{ConditionConstraints, ConditionHolders},
		{ConditionConstraints, ConditionTaints, ConditionHolders},
		{ConditionSelectors, ConditionConstraints, ConditionTaints, ConditionHolders},
		{ConditionSize, ConditionSelectors, ConditionConstraints, ConditionTaints, ConditionHolders},
		conditions(),
	}
}

// mostUnended bounds the nodes on which a search may reach its limit, because a shape of
// claims that does so on one node does so on many.
const mostUnended = 5

// Verdicts returns the verdict of each node for the claims of a pod together: nodes on which
// they fit, then the nearest misses. Claims that have an allocation only restrict the nodes.
// The pod is nil for claims without one. The error is the one of the context.
func (f *Fleet) Verdicts(ctx context.Context, pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) ([]Verdict, error) {
	open := withoutAllocation(claims)
	var all []Verdict
	unended := 0
	for _, node := range f.NodeNames() {
		v := Verdict{Node: node, Excluded: append(f.Excludes(node, pod), f.allocatedElsewhere(node, claims)...), distance: len(misses()) + 2}
		switch {
		case v.Excluded != nil:
		case unended == mostUnended:
			v.Problem = fmt.Errorf("node %s is not searched: %w: the search did not end on %d other nodes", node, gpu.ErrTimeout, unended)
		default:
			v = f.verdict(ctx, f.newAttempt(node, open...))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if v.Excluded == nil && errors.Is(v.Problem, gpu.ErrTimeout) && unended < mostUnended {
			unended++
		}
		all = append(all, v)
	}
	slices.SortStableFunc(all, func(a, b Verdict) int { return cmp.Compare(a.distance, b.distance) })
	return all, nil
}

func withoutAllocation(claims []*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *resourceapi.ResourceClaim) bool { return c.Status.Allocation != nil })
}

func (f *Fleet) verdict(ctx context.Context, q attempt) Verdict {
	v := Verdict{Node: q.node}
	if v.Allocations, v.Problem = f.allocate(ctx, q); v.Fits() {
		return v
	}
	v.distance = len(misses()) + 1
	if v.Problem != nil {
		return v
	}
	for i, dropped := range misses() {
		if slices.Contains(dropped, ConditionClass) {
			// A node with one device of each class has too few, whatever other devices it has.
			if found, err := f.allocate(ctx, q.single().without(misses()[i-1]...)); err == nil && found != nil {
				break
			}
		}
		found, err := f.allocate(ctx, q.without(dropped...))
		if err != nil {
			v.Problem = err
			return v
		}
		if found != nil {
			v.Missing, v.distance = dropped, i+1
			return v
		}
	}
	v.Problem = incomplete(q.slices)
	return v
}

// incomplete returns an error for a pool of which slices are missing: the scheduler
// allocates none of its devices. It returns nil if there is none.
func incomplete(all []*resourceapi.ResourceSlice) error {
	pools := newestPools(all)
	for _, id := range slices.SortedFunc(maps.Keys(pools), func(a, b pool) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name))
	}) {
		if p := pools[id]; !p.complete() {
			return fmt.Errorf("pool %s of %s: %w: %d of %d slices are published", id.name, id.driver, gpu.ErrNotReady, len(p.slices), p.slices[0].Spec.Pool.ResourceSliceCount)
		}
	}
	return nil
}

// DeviceCheck is whether a device meets a request.
type DeviceCheck struct {
	Device Device
	// Missing are the conditions that the device does not meet, each for itself; none if
	// it meets the request.
	Missing []Condition
	// Selectors are the indexes of the request's selectors that do not select it.
	Selectors []int
}

// RequestCheck is the check of each device of a node for a request.
type RequestCheck struct {
	// Claim is the index of the claim, and Request the name of the request.
	Claim   int
	Request string
	Exactly resourceapi.ExactDeviceRequest
	Devices []DeviceCheck
}

// Meeting returns the number of devices that meet the request, each for itself.
func (a RequestCheck) Meeting() int {
	n := 0
	for _, d := range a.Devices {
		if len(d.Missing) == 0 {
			n++
		}
	}
	return n
}

// Check checks each device of a node for each request of the claims, alone: without the
// other requests and the constraints. The error wraps [gpu.ErrTimeout] or [gpu.ErrInvalid].
func (f *Fleet) Check(ctx context.Context, node string, claims ...*resourceapi.ResourceClaim) ([]RequestCheck, error) {
	q := f.newAttempt(node, claims...)
	var all []RequestCheck
	for _, r := range q.requests() {
		checks := RequestCheck{Claim: r.claim, Request: r.name, Exactly: r.exactly}
		for _, p := range newestPools(q.slices) {
			for _, slice := range p.slices {
				for i := range slice.Spec.Devices {
					id := DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name}
					check, err := f.check(ctx, q, r, f.device(id, &slice.Spec.Devices[i]))
					if err != nil {
						return nil, err
					}
					checks.Devices = append(checks.Devices, check)
				}
			}
		}
		slices.SortFunc(checks.Devices, func(a, b DeviceCheck) int { return a.Device.ID.compare(b.Device.ID) })
		all = append(all, checks)
	}
	return all, nil
}

func (f *Fleet) check(ctx context.Context, q attempt, r request, d Device) (DeviceCheck, error) {
	check := DeviceCheck{Device: d}
	one := q.of(d.ID, r)
	found, err := f.allocate(ctx, one)
	// A selector that fails on the device does not select it.
	if err != nil && !errors.Is(err, gpu.ErrInvalid) || found != nil {
		return check, err
	}
	for _, c := range conditions() {
		keep := []Condition{c}
		// Whether enough is free depends on the requested amount.
		if c == ConditionHolders {
			if slices.Contains(check.Missing, ConditionSize) {
				continue
			}
			keep = append(keep, ConditionSize)
		}
		met, err := f.meets(ctx, one, keep...)
		if err != nil {
			return check, err
		}
		if !met {
			check.Missing = append(check.Missing, c)
		}
	}
	if slices.Contains(check.Missing, ConditionSelectors) {
		check.Selectors, err = f.failing(ctx, one, r)
	}
	return check, err
}

// meets reports whether the claims fit if nothing but some conditions count. A selector that
// fails on a device, because it reads an attribute that the device lacks, does not select it.
func (f *Fleet) meets(ctx context.Context, q attempt, keep ...Condition) (bool, error) {
	found, err := f.allocate(ctx, q.without(slices.DeleteFunc(conditions(), func(c Condition) bool { return slices.Contains(keep, c) })...))
	if errors.Is(err, gpu.ErrInvalid) && !slices.Contains(keep, ConditionHolders) {
		return false, nil
	}
	return found != nil, err
}

// failing returns the indexes of the request's selectors that do not select the device.
func (f *Fleet) failing(ctx context.Context, one attempt, r request) ([]int, error) {
	var failing []int
	for i, selector := range r.exactly.Selectors {
		q := one
		q.claims = []*resourceapi.ResourceClaim{one.claims[0].DeepCopy()}
		selectors := &q.claims[0].Spec.Devices.Requests[0].Exactly.Selectors
		*selectors = []resourceapi.DeviceSelector{selector, (*selectors)[len(*selectors)-1]}
		met, err := f.meets(ctx, q, ConditionSelectors)
		if err != nil {
			return nil, err
		}
		if !met {
			failing = append(failing, i)
		}
	}
	return failing, nil
}
