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

// miss is the nearest miss of a node.
type miss struct {
	missing  []Condition
	distance int
}

// missOf returns the nearest miss of another node on which the allocator does the same.
// Nodes of a fleet are alike, and a miss takes many runs of the allocator. key is the one for
// [Search.keep]; it is empty if the node must be searched.
func (s *Search) missOf(ctx context.Context, q attempt) (known miss, key string, ok bool) {
	key = s.describe(ctx, q)
	known, ok = s.missesOf[key]
	return known, key, ok && key != ""
}

// keep records a verdict. Allocations and problems name the node, so they are not kept.
func (s *Search) keep(key string, v Verdict) {
	if key != "" && !v.Fits() && v.Problem == nil {
		s.missesOf[key] = miss{v.Missing, v.distance}
	}
}

// alike returns the index of a node that is searched for each node. It is the first node on which
// the allocator does the same for a claim, or the node itself.
func (s *Search) alike(ctx context.Context, nodes []string, claim *resourceapi.ResourceClaim) []int {
	same, first := make([]int, len(nodes)), map[[sha256.Size]byte]int{}
	for i, node := range nodes {
		same[i] = i
		text := s.describe(ctx, s.fleet.newAttempt(node, claim))
		if text == "" {
			continue
		}
		// The texts of all nodes would take much memory.
		key := sha256.Sum256([]byte(text))
		if known, ok := first[key]; ok {
			same[i] = known
		} else {
			first[key] = i
		}
	}
	return same
}

// describe returns all that the allocator reads of an attempt: of attributes, these are the
// results of the selectors and the values of the constraints. It returns nothing if a selector
// was not evaluated.
func (s *Search) describe(ctx context.Context, q attempt) string {
	// The selectors of each request follow those of its class.
	var selectors [][]resourceapi.DeviceSelector
	for _, r := range q.requests() {
		class, err := q.classes.Get(r.exactly.DeviceClassName)
		if err != nil {
			return ""
		}
		selectors = append(selectors, class.Spec.Selectors, slices.Concat(class.Spec.Selectors, r.exactly.Selectors))
	}
	var b strings.Builder
	var compared []resourceapi.FullyQualifiedName
	for _, claim := range q.claims {
		// A caller may change a claim, or explain a changed copy.
		spec, err := json.Marshal(claim.Spec)
		if err != nil {
			return ""
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
	for _, slice := range q.slices {
		if !s.describeSlice(ctx, &b, q.node, slice, selectors, compared) {
			return ""
		}
	}
	return b.String()
}

// describeSlice writes a slice. A pool of the node's name is alike on all nodes.
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
	fmt.Fprintf(b, "%s %s %d %d\n", spec.Driver, name, spec.Pool.Generation, spec.Pool.ResourceSliceCount)
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
