// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// likeness is the same for nodes on which the allocator does the same for the same claims: a
// hash of all that it reads.
type likeness [sha256.Size]byte

// miss is the nearest miss of a node.
type miss struct {
	missing  []Condition
	distance int
}

// alike returns the index of a node that is searched for each node. It is the first node on which
// the allocator does the same for a claim, or the node itself.
func (s *Search) alike(ctx context.Context, nodes []string, claim *resourceapi.ResourceClaim) []int {
	same, first := make([]int, len(nodes)), map[likeness]int{}
	for i, node := range nodes {
		same[i] = i
		key, ok := s.describe(ctx, node, claim)
		if !ok {
			continue
		}
		if known, found := first[key]; found {
			same[i] = known
		} else {
			first[key] = i
		}
	}
	return same
}

// describe returns the likeness of a node. Of attributes, the allocator reads the results of the
// selectors and the values of the constraints. ok is false if a selector was not evaluated, or if
// the node has a slice of several nodes or another part that is not described.
func (s *Search) describe(ctx context.Context, node string, claims ...*resourceapi.ResourceClaim) (_ likeness, ok bool) {
	var b strings.Builder
	// The selectors of each request follow those of its class.
	var selectors [][]resourceapi.DeviceSelector
	for _, r := range (attempt{claims: claims}).requests() {
		class, err := s.fleet.classes.Get(r.exactly.DeviceClassName)
		if err != nil {
			return likeness{}, false
		}
		selectors = append(selectors, class.Spec.Selectors, slices.Concat(class.Spec.Selectors, r.exactly.Selectors))
	}
	var compared []resourceapi.FullyQualifiedName
	for _, claim := range claims {
		// A caller may change a claim, or explain a changed copy.
		spec, err := json.Marshal(claim.Spec)
		if err != nil {
			return likeness{}, false
		}
		b.Write(spec)
		for _, c := range claim.Spec.Devices.Constraints {
			for _, name := range []*resourceapi.FullyQualifiedName{c.MatchAttribute, c.DistinctAttribute} {
				if name != nil {
					compared = append(compared, *name)
				}
			}
		}
	}
	all := s.fleet.slicesFor(node)
	type pool struct{ driver, name string }
	poolOf := func(slice *resourceapi.ResourceSlice) pool { return pool{slice.Spec.Driver, slice.Spec.Pool.Name} }
	newest := map[pool]int64{}
	for _, slice := range all {
		newest[poolOf(slice)] = max(newest[poolOf(slice)], slice.Spec.Pool.Generation)
	}
	for _, slice := range all {
		// Generations count the changes of a pool, so they differ between nodes. The allocator
		// compares those of one pool only.
		fmt.Fprintf(&b, "%d ", newest[poolOf(slice)]-slice.Spec.Pool.Generation)
		if !s.describeSlice(ctx, &b, node, slice, selectors, compared) {
			return likeness{}, false
		}
	}
	return sha256.Sum256([]byte(b.String())), true
}

// describeSlice writes a slice without its generation. A pool of the node's name is alike on all
// nodes.
func (s *Search) describeSlice(ctx context.Context, b *strings.Builder, node string, slice *resourceapi.ResourceSlice, selectors [][]resourceapi.DeviceSelector, compared []resourceapi.FullyQualifiedName) bool {
	spec := &slice.Spec
	name := spec.Pool.Name
	if name == node {
		name = "\x00"
	}
	// A slice of several nodes may select them by labels.
	if spec.NodeName == nil {
		return false
	}
	fmt.Fprintf(b, "%s %s %d\n", spec.Driver, name, spec.Pool.ResourceSliceCount)
	for _, set := range spec.SharedCounters {
		b.WriteString(set.Name)
		for _, name := range slices.Sorted(maps.Keys(set.Counters)) {
			value := set.Counters[name].Value
			fmt.Fprintf(b, " %s=%s", name, value.String())
		}
	}
	for i := range spec.Devices {
		device := &spec.Devices[i]
		// Fields about one node or other parts of the scheduler are rare, and not described.
		if device.NodeName != nil || device.NodeSelector != nil || device.AllNodes != nil || device.BindsToNode != nil || len(device.BindingConditions) > 0 || len(device.NodeAllocatableResources) > 0 {
			return false
		}
		d := s.fleet.device(DeviceID{spec.Driver, spec.Pool.Name, device.Name}, device)
		fmt.Fprintf(b, "\n%s %t", device.Name, device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations)
		for _, all := range selectors {
			m := s.selects(ctx, all, d, spec.Driver)
			if m.notExamined {
				return false
			}
			fmt.Fprintf(b, " %t%t", m.selected, m.failed)
		}
		describeDevice(b, d, spec.Driver, compared)
	}
	return true
}

func describeDevice(b *strings.Builder, d Device, driver string, compared []resourceapi.FullyQualifiedName) {
	for _, name := range compared {
		value, found := d.Published.Attributes[resourceapi.QualifiedName(name)]
		if short, ok := strings.CutPrefix(string(name), driver+"/"); ok && !found {
			value, found = d.Published.Attributes[resourceapi.QualifiedName(short)]
		}
		if found {
			text, _ := value.Marshal() // it fails for no value
			fmt.Fprintf(b, " %s=%q", name, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Published.Capacity)) {
		capacity := d.Published.Capacity[name]
		fmt.Fprintf(b, " %s=%s", name, capacity.Value.String())
		if capacity.RequestPolicy != nil {
			b.WriteString(capacity.RequestPolicy.String())
		}
	}
	for _, taint := range d.Published.Taints {
		fmt.Fprintf(b, " %s=%s:%s", taint.Key, taint.Value, taint.Effect)
	}
	for _, counters := range d.Published.ConsumesCounters {
		b.WriteString(" " + counters.CounterSet)
		for _, name := range slices.Sorted(maps.Keys(counters.Counters)) {
			value := counters.Counters[name].Value
			fmt.Fprintf(b, " %s=%s", name, value.String())
		}
	}
	for _, h := range d.Holders {
		fmt.Fprintf(b, " held %t %t", h.Admin(), h.Shared())
		for _, name := range slices.Sorted(maps.Keys(h.Result.ConsumedCapacity)) {
			value := h.Result.ConsumedCapacity[name]
			fmt.Fprintf(b, " %s=%s", name, value.String())
		}
	}
}
