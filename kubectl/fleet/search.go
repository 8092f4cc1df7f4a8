// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ErrNotExamined is the problem of a node or device that the limit of a [Search] left out. It
// wraps [gpu.ErrTimeout].
var ErrNotExamined = fmt.Errorf("not examined: %w", gpu.ErrTimeout)

const (
	// defaultLimit is the time for a search if the caller names none.
	defaultLimit = 20 * time.Second
	// mostWork bounds the evaluations of selectors and the runs of the allocator of a search.
	mostWork = 1_000_000
)

// Search examines nodes and devices for one explanation. All of its methods together end
// within its limit of time and work; they report that something was not examined, which
// never counts as a device or node that meets the claims. Its methods must not run at the same time.
type Search struct {
	fleet    *Fleet
	limit    time.Duration
	deadline time.Time
	left     int
	matches  map[evaluation]match
	reads    map[string]reads // of expressions
	// missesOf are the nearest misses of nodes by their likeness.
	missesOf map[likeness]miss
}

// evaluation is a selector and the values of a device that it depends on: it is evaluated once on
// devices with the same ones. If these are not known, it is the device.
type evaluation struct {
	expression string
	values     string
	device     DeviceID
}

// match is the result of a selector on a device. The scheduler refuses the claim if it fails.
type match struct {
	selected, failed bool
	// err is the error of a selector that failed on the device; nil if it does not compile.
	err error
	// notExamined is set if the evaluation was interrupted: then nothing else is known.
	notExamined bool
}

// NewSearch returns a search that ends after the limit; after 20 seconds if it is 0.
func (f *Fleet) NewSearch(limit time.Duration) *Search {
	limit = cmp.Or(limit, defaultLimit)
	return &Search{fleet: f, limit: limit, deadline: time.Now().Add(limit), left: mostWork, matches: map[evaluation]match{}, reads: map[string]reads{}, missesOf: map[likeness]miss{}}
}

// Fleet returns the fleet that is searched.
func (s *Search) Fleet() *Fleet { return s.fleet }

// ended reports whether the search has reached its limit.
func (s *Search) ended() bool { return s.left <= 0 || !time.Now().Before(s.deadline) }

func (s *Search) notExamined(what string) error {
	return fmt.Errorf("%s: %w: the search ended after %s", what, ErrNotExamined, s.limit)
}

// allocate is like [Fleet.allocate] within the limit of the search.
func (s *Search) allocate(ctx context.Context, q attempt) ([]resourceapi.AllocationResult, error) {
	s.left--
	ctx, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	return s.fleet.allocate(ctx, q)
}

// selects reports whether all selectors select a device. A selector that fails on the device
// does not, and the result is not known if one is interrupted.
func (s *Search) selects(ctx context.Context, selectors []resourceapi.DeviceSelector, d Device, driver string) match {
	for _, selector := range selectors {
		if selector.CEL == nil {
			return match{failed: true}
		}
		if m := s.evaluate(ctx, selector.CEL.Expression, d, driver); !m.selected {
			return m
		}
	}
	return match{selected: true}
}

func (s *Search) evaluate(ctx context.Context, expression string, d Device, driver string) match {
	key := evaluation{expression: expression, device: d.ID}
	if r := s.readsOf(expression); r.onlyNames {
		var b strings.Builder
		describeRead(&b, r.names, d, driver)
		key.device, key.values = DeviceID{}, b.String()
	}
	if known, ok := s.matches[key]; ok {
		return known
	}
	s.left--
	ctx, cancel := context.WithDeadline(ctx, s.deadline)
	defer cancel()
	m := match{failed: true}
	if program := s.fleet.cel.GetOrCompile(expression); program.Error == nil {
		selected, _, err := program.DeviceMatches(ctx, cel.Device{
			Driver: driver, AllowMultipleAllocations: d.Published.AllowMultipleAllocations, Attributes: d.Published.Attributes, Capacity: d.Published.Capacity,
		})
		if err != nil && ctx.Err() != nil {
			return match{notExamined: true}
		}
		m = match{selected: selected, failed: err != nil, err: err}
	}
	s.matches[key] = m
	return m
}

func (s *Search) readsOf(expression string) reads {
	r, known := s.reads[expression]
	if !known {
		r = readsOf(expression)
		s.reads[expression] = r
	}
	return r
}

// Verdicts returns the verdict of each node for the claims of a pod together: nodes on which
// they fit, then the nearest misses, then nodes that are not examined. Claims that have an
// allocation only restrict the nodes. The pod is nil for claims without one. The error is the
// one of the context.
func (s *Search) Verdicts(ctx context.Context, pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) ([]Verdict, error) {
	open := withoutAllocation(claims)
	var all []Verdict
	unended := 0
	for _, node := range s.fleet.NodeNames() {
		v := Verdict{Node: node, Excluded: append(s.fleet.Excludes(node, pod), s.fleet.allocatedElsewhere(node, claims)...), Taints: s.fleet.notTolerated(node, pod), distance: len(misses) + 2}
		switch {
		case v.Excluded != nil:
		case s.ended():
			v.Problem, v.distance = s.notExamined("node "+node), v.distance+1
		case unended == mostUnended:
			v.Problem = fmt.Errorf("node %s: %w: the search did not end on %d other nodes", node, ErrNotExamined, unended)
			v.distance++
		default:
			v = s.verdict(ctx, node, open)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if errors.Is(v.Problem, gpu.ErrTimeout) && !errors.Is(v.Problem, ErrNotExamined) {
			unended++
		}
		all = append(all, v)
	}
	slices.SortStableFunc(all, func(a, b Verdict) int { return cmp.Compare(a.distance, b.distance) })
	return all, nil
}

// verdict returns the verdict of a node. If the search ends meanwhile, the node is not
// examined.
func (s *Search) verdict(ctx context.Context, node string, open []*resourceapi.ResourceClaim) Verdict {
	// Nodes of a fleet are alike, and a miss takes many runs of the allocator.
	key, described := s.describe(ctx, node, open...)
	if known, ok := s.missesOf[key]; ok && described {
		return Verdict{Node: node, Missing: known.missing, distance: known.distance}
	}
	v := s.nearest(ctx, s.fleet.newAttempt(node, open...))
	if !v.Fits() && s.ended() {
		return Verdict{Node: node, Problem: s.notExamined("node " + node), distance: len(misses) + 3}
	}
	// Allocations and problems name the node, so they are not kept.
	if described && !v.Fits() && v.Problem == nil {
		s.missesOf[key] = miss{v.Missing, v.distance}
	}
	return v
}

// nearest returns the verdict of the allocator, and the nearest miss if the claims do not fit.
func (s *Search) nearest(ctx context.Context, all attempt) Verdict {
	v := Verdict{Node: all.node}
	q := s.relevant(ctx, all)
	if v.Allocations, v.Problem = s.allocate(ctx, q); v.Fits() {
		return v
	}
	v.distance = len(misses) + 1
	if v.Problem != nil {
		return v
	}
	for i, dropped := range misses {
		if slices.Contains(dropped, ConditionClass) {
			if v.Problem = unusable(q.slices); v.Problem != nil {
				return v
			}
			// A node with one device of each class has too few, whatever other devices it has.
			if found, err := s.allocate(ctx, q.single().without(misses[i-1]...)); err == nil && found != nil {
				break
			}
			q = all
		}
		found, err := s.allocate(ctx, q.without(dropped...))
		if err != nil {
			v.Problem = err
			return v
		}
		if found != nil {
			v.Missing, v.distance = dropped, i+1
			return v
		}
	}
	v.Problem = unusable(all.slices)
	return v
}

// relevant returns the attempt without the devices that no request can get, because they are of
// another class. The allocator would evaluate the selectors of the classes on them in each of
// its runs. Devices on which a selector fails stay, because the allocator then refuses the
// claims; so do devices of unusable pools, and devices in use, which take counters.
func (s *Search) relevant(ctx context.Context, q attempt) attempt {
	classes, ok := q.classesOfRequests()
	if !ok {
		return q
	}
	broken := unusablePools(q.slices)
	all := make([]*resourceapi.ResourceSlice, len(q.slices))
	for i, slice := range q.slices {
		all[i] = slice
		if broken[pool{slice.Spec.Driver, slice.Spec.Pool.Name}] != nil {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(slice.Spec.Devices), func(device resourceapi.Device) bool {
			d := s.fleet.device(DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, device.Name}, &device)
			return len(d.Holders) == 0 && !s.ended() && !slices.ContainsFunc(classes, func(class *resourceapi.DeviceClass) bool {
				m := s.selects(ctx, class.Spec.Selectors, d, slice.Spec.Driver)
				return m.selected || m.failed || m.notExamined
			})
		})
		if len(kept) < len(slice.Spec.Devices) {
			copied := *slice
			copied.Spec.Devices = kept
			all[i] = &copied
		}
	}
	q.slices = all
	return q
}

// classesOfRequests returns the classes of all requests, and false if one does not exist.
func (q attempt) classesOfRequests() ([]*resourceapi.DeviceClass, bool) {
	var all []*resourceapi.DeviceClass
	for _, r := range q.requests() {
		class, err := q.classes.Get(r.Exactly.DeviceClassName)
		if err != nil {
			return nil, false
		}
		AddOnce(&all, class)
	}
	return all, true
}

// Check checks each device of a node for each request of the claims, alone: without the
// other requests and the constraints. The error is the one of the context.
func (s *Search) Check(ctx context.Context, node string, claims ...*resourceapi.ResourceClaim) ([]RequestCheck, error) {
	q := s.fleet.newAttempt(node, claims...)
	pools, broken := newestPools(q.slices), unusablePools(q.slices)
	held := map[pool][]*resourceapi.ResourceSlice{}
	for id, p := range pools {
		held[id] = s.held(p)
	}
	var all []RequestCheck
	for _, r := range q.requests() {
		checks := RequestCheck{Claim: r.claim, Request: r.Name, Exactly: r.Exactly}
		for id, p := range pools {
			for i, slice := range p.slices {
				for j := range slice.Spec.Devices {
					own := q
					own.slices = with(held[id], i, slice.Spec.Devices[j])
					d := s.fleet.device(DeviceID{id.driver, id.name, slice.Spec.Devices[j].Name}, &slice.Spec.Devices[j])
					check, err := s.check(ctx, own, r, d, broken[id])
					switch {
					case ctx.Err() != nil:
						return nil, ctx.Err()
					case err != nil:
						checks.NotExamined++
					default:
						checks.Devices = append(checks.Devices, check)
					}
				}
			}
		}
		slices.SortFunc(checks.Devices, func(a, b DeviceCheck) int { return a.Device.ID.compare(b.Device.ID) })
		all = append(all, checks)
	}
	return all, nil
}

// check checks a device. The attempt has the device and the ones in use in its pool, and
// broken is the reason why the scheduler allocates no device of the pool. An error means that the device is not examined.
func (s *Search) check(ctx context.Context, q attempt, r request, d Device, broken error) (DeviceCheck, error) {
	check := DeviceCheck{Device: d, Pool: broken}
	if s.ended() {
		return check, s.notExamined("device " + d.ID.Device)
	}
	class, err := q.classes.Get(r.Exactly.DeviceClassName)
	ofClass := match{}
	if err == nil {
		ofClass = s.selects(ctx, class.Spec.Selectors, d, d.ID.Driver)
	}
	switch {
	case ofClass.notExamined:
		return check, s.notExamined("device " + d.ID.Device)
	case !ofClass.selected:
		check.Missing = []Condition{ConditionClass}
	case broken != nil:
		check.Missing = []Condition{ConditionPool}
	default:
		for i, selector := range r.Exactly.Selectors {
			m := s.selects(ctx, []resourceapi.DeviceSelector{selector}, d, d.ID.Driver)
			if m.notExamined {
				return check, s.notExamined("device " + d.ID.Device)
			}
			if !m.selected {
				check.Selectors = append(check.Selectors, i)
			}
		}
		err = s.compare(ctx, q.forDevice(d.ID, r).without(ConditionClass, ConditionSelectors), &check)
	}
	// The limit may have interrupted the allocator.
	if s.ended() {
		return check, s.notExamined("device " + d.ID.Device)
	}
	return check, err
}

// compare adds the conditions besides the selectors that a device does not meet.
func (s *Search) compare(ctx context.Context, one attempt, check *DeviceCheck) error {
	if check.Selectors != nil {
		check.Missing = append(check.Missing, ConditionSelectors)
	}
	found, err := s.allocate(ctx, one)
	if err != nil && !errors.Is(err, gpu.ErrInvalid) || found != nil {
		return err
	}
	for _, c := range []Condition{ConditionSize, ConditionTaints, ConditionHolders} {
		keep := []Condition{c}
		// Whether enough is free depends on the requested amount.
		if c == ConditionHolders {
			if slices.Contains(check.Missing, ConditionSize) {
				continue
			}
			keep = append(keep, ConditionSize)
		}
		found, err := s.allocate(ctx, one.without(slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool { return slices.Contains(keep, c) })...))
		if err != nil && !errors.Is(err, gpu.ErrInvalid) {
			return err
		}
		if found == nil {
			check.Missing = append(check.Missing, c)
		}
	}
	return nil
}

// held returns the slices of a pool with the devices in use only. The free ones have no part in
// the allocation of one device.
func (s *Search) held(p poolSlices) []*resourceapi.ResourceSlice {
	all := make([]*resourceapi.ResourceSlice, len(p.slices))
	for i, slice := range p.slices {
		copied := *slice
		copied.Spec.Devices = slices.DeleteFunc(slices.Clone(slice.Spec.Devices), func(device resourceapi.Device) bool {
			return len(s.fleet.holders[DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, device.Name}]) == 0
		})
		all[i] = &copied
	}
	return all
}

// with returns the slices with a device in one of them.
func with(all []*resourceapi.ResourceSlice, i int, device resourceapi.Device) []*resourceapi.ResourceSlice {
	if slices.ContainsFunc(all[i].Spec.Devices, func(d resourceapi.Device) bool { return d.Name == device.Name }) {
		return all
	}
	copied := *all[i]
	copied.Spec.Devices = append(slices.Clip(copied.Spec.Devices), device)
	all = slices.Clone(all)
	all[i] = &copied
	return all
}
