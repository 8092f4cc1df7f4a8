// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// likeness is the same for nodes on which the allocator does the same for the same claims: a
// hash of all that it reads.
type likeness [sha256.Size]byte

// miss is the nearest miss of a node.
type miss struct {
	missing  []Condition
	distance int
}

// alike returns the node that is searched for each of some nodes: the first one with the same
// likeness, or the node itself.
func alike(nodes []string, likenessOf func(node string) (_ likeness, ok bool)) map[string]string {
	same, first := make(map[string]string, len(nodes)), map[likeness]string{}
	for _, node := range nodes {
		same[node] = node
		key, ok := likenessOf(node)
		if !ok {
			continue
		}
		if known, found := first[key]; found {
			same[node] = known
		} else {
			first[key] = node
		}
	}
	return same
}

// outline returns a likeness of a node for many claims: it has the values that their selectors
// read, so none is evaluated. ok is false if a selector may read other attributes, or for the
// reasons of [Search.describe].
func (s *Search) outline(node string, claims ...*resourceapi.ResourceClaim) (_ likeness, ok bool) {
	selectors, ok := s.selectorsOf(claims)
	if !ok {
		return likeness{}, false
	}
	names := comparedBy(claims)
	for _, selector := range slices.Concat(selectors...) {
		if selector.CEL == nil {
			continue
		}
		r := s.readsOf(selector.CEL.Expression)
		if !r.onlyNames {
			return likeness{}, false
		}
		for _, name := range r.names {
			AddOnce(&names, name)
		}
	}
	var b strings.Builder
	ok = s.describeSlices(&b, node, func(d Device, driver string) bool {
		describeAttributes(&b, names, d, driver)
		return true
	})
	return sha256.Sum256([]byte(b.String())), ok
}

// selectorsOf returns the selectors of each request after those of its class, which are also
// there alone. ok is false if a class does not exist.
func (s *Search) selectorsOf(claims []*resourceapi.ResourceClaim) (_ [][]resourceapi.DeviceSelector, ok bool) {
	var all [][]resourceapi.DeviceSelector
	for _, r := range (attempt{claims: claims}).requests() {
		class, err := s.fleet.classes.Get(r.Exactly.DeviceClassName)
		if err != nil {
			return nil, false
		}
		all = append(all, class.Spec.Selectors, slices.Concat(class.Spec.Selectors, r.Exactly.Selectors))
	}
	return all, true
}

// comparedBy returns the attributes that the constraints of claims compare.
func comparedBy(claims []*resourceapi.ResourceClaim) []Name {
	var compared []Name
	for _, claim := range claims {
		for _, c := range claim.Spec.Devices.Constraints {
			for _, name := range []*resourceapi.FullyQualifiedName{c.MatchAttribute, c.DistinctAttribute} {
				if name != nil {
					compared = append(compared, publishedName("", resourceapi.QualifiedName(*name), false))
				}
			}
		}
	}
	return compared
}

// describe returns the likeness of a node. Of attributes, the allocator reads the results of the
// selectors and the values of the constraints. ok is false if a selector was not evaluated, or if
// the node has a slice of several nodes or another part that is not described.
func (s *Search) describe(ctx context.Context, node string, claims ...*resourceapi.ResourceClaim) (_ likeness, ok bool) {
	selectors, ok := s.selectorsOf(claims)
	if !ok {
		return likeness{}, false
	}
	var b strings.Builder
	for _, claim := range claims {
		// A caller may change a claim, or explain a changed copy.
		spec, err := json.Marshal(claim.Spec)
		if err != nil {
			return likeness{}, false
		}
		b.Write(spec)
	}
	compared := comparedBy(claims)
	ok = s.describeSlices(&b, node, func(d Device, driver string) bool {
		for _, all := range selectors {
			m := s.selects(ctx, all, d, driver)
			if m.notExamined {
				return false
			}
			fmt.Fprintf(&b, " %t%t", m.selected, m.failed)
		}
		for _, name := range compared {
			describeAttribute(&b, name, d, driver)
		}
		return true
	})
	return sha256.Sum256([]byte(b.String())), ok
}

// describeSlices writes all that the allocator reads of a node but attributes, of which
// writeAttributes writes what matters. ok is false if the node has a part that is not described.
func (s *Search) describeSlices(b *strings.Builder, node string, writeAttributes func(d Device, driver string) bool) (ok bool) {
	all := s.fleet.slicesFor(node)
	newest := newestPools(all)
	for _, slice := range all {
		// Generations count the changes of a pool, so they differ between nodes. The allocator
		// compares those of one pool only.
		fmt.Fprintf(b, "%d ", newest[pool{slice.Spec.Driver, slice.Spec.Pool.Name}].generation-slice.Spec.Pool.Generation)
		if !s.describeSlice(b, node, slice, writeAttributes) {
			return false
		}
	}
	return true
}

// describeSlice writes a slice without its generation. A pool of the node's name is alike on all
// nodes.
func (s *Search) describeSlice(b *strings.Builder, node string, slice *resourceapi.ResourceSlice, writeAttributes func(d Device, driver string) bool) bool {
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
		describeAmounts(b, set.Counters, func(c resourceapi.Counter) resource.Quantity { return c.Value })
	}
	for i := range spec.Devices {
		device := &spec.Devices[i]
		// Fields about one node or other parts of the scheduler are rare, and not described.
		if device.NodeName != nil || device.NodeSelector != nil || device.AllNodes != nil || device.BindsToNode != nil || len(device.BindingConditions) > 0 || len(device.NodeAllocatableResources) > 0 {
			return false
		}
		id := DeviceID{spec.Driver, spec.Pool.Name, device.Name}
		d := Device{ID: id, Published: device, Holders: s.fleet.holders[id]}
		fmt.Fprintf(b, "\n%s %t", device.Name, ptr.Deref(device.AllowMultipleAllocations, false))
		if !writeAttributes(d, spec.Driver) {
			return false
		}
		describeDevice(b, d)
	}
	return true
}

// describeRead writes all that an expression with these names can read of a device.
func describeRead(b *strings.Builder, names []Name, d Device, driver string) {
	fmt.Fprintf(b, "%s %t", driver, ptr.Deref(d.Published.AllowMultipleAllocations, false))
	describeAttributes(b, names, d, driver)
	describeAmounts(b, d.Published.Capacity, func(c resourceapi.DeviceCapacity) resource.Quantity { return c.Value })
}

// describeAttributes writes the attributes on which an expression with these names depends. Before
// it evaluates any, CEL converts all attributes, which can fail for others than these three types.
func describeAttributes(b *strings.Builder, names []Name, d Device, driver string) {
	for _, name := range names {
		if !name.Capacity {
			describeAttribute(b, name, d, driver)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Published.Attributes)) {
		value := d.Published.Attributes[name]
		if value.StringValue == nil && value.BoolValue == nil && value.IntValue == nil {
			describeValue(b, string(name), value)
		}
	}
}

// describeAttribute writes the value of an attribute. A device may have it with the domain of its
// driver and without.
func describeAttribute(b *strings.Builder, name Name, d Device, driver string) {
	published := []resourceapi.QualifiedName{resourceapi.QualifiedName(name.Domain + "/" + name.ID)}
	if name.Domain == driver {
		published = append(published, resourceapi.QualifiedName(name.ID))
	}
	for _, full := range published {
		if value, found := d.Published.Attributes[full]; found {
			describeValue(b, string(full), value)
		}
	}
}

func describeValue(b *strings.Builder, name string, value resourceapi.DeviceAttribute) {
	text, _ := value.Marshal() // it fails for no value
	fmt.Fprintf(b, " %s=%q", name, text)
}

// describeDevice writes what the allocator reads of a device besides its attributes.
func describeDevice(b *strings.Builder, d Device) {
	for _, name := range slices.Sorted(maps.Keys(d.Published.Capacity)) {
		capacity := d.Published.Capacity[name]
		fmt.Fprintf(b, " %s=%s", name, capacity.Value.String())
		if capacity.RequestPolicy != nil {
			// A quantity keeps its text, and others read the same slices.
			b.WriteString(capacity.RequestPolicy.DeepCopy().String())
		}
	}
	for _, taint := range d.Published.Taints {
		fmt.Fprintf(b, " %s=%s:%s", taint.Key, taint.Value, taint.Effect)
	}
	for _, counters := range d.Published.ConsumesCounters {
		b.WriteString(" " + counters.CounterSet)
		describeAmounts(b, counters.Counters, func(c resourceapi.Counter) resource.Quantity { return c.Value })
	}
	for _, h := range d.Holders {
		fmt.Fprintf(b, " held %t %t", h.Admin(), h.Shared())
		describeAmounts(b, h.Result.ConsumedCapacity, func(q resource.Quantity) resource.Quantity { return q })
	}
}

// describeAmounts writes amounts in order of their names.
func describeAmounts[K cmp.Ordered, V any](b *strings.Builder, all map[K]V, amount func(V) resource.Quantity) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := amount(all[name])
		fmt.Fprintf(b, " %v=%s", name, value.String())
	}
}
