// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// roomNode is a node on which the end of some pods lets the pod run.
type roomNode struct {
	attempt
	// short has a sentence for each resource that the node lacks now.
	short []string
	// units may end, the cheapest first. The last ones end already, from ending on.
	units  []*unit
	ending int
	// held are the allocations of the node's devices.
	held []heldDevice
	// groups are the groups of devices that each unit has a part of. most bounds the groups of a
	// smallest set: it has only pods on the devices that the claims get. It is 0 without a bound.
	groups []map[DeviceID]bool
	most   int
	// known are the results by the units with devices that are gone, which have an order of their own.
	// Nodes on which the allocator does the same share them.
	known   map[string]bool
	ordered []int
}

// heldDevice is an allocation, which ends with the last of some units.
type heldDevice struct {
	Holder
	// units is nil if the allocation stays.
	units []int
}

// ends reports whether the allocation ends with some units.
func (h heldDevice) ends(gone mask) bool {
	return h.units != nil && !slices.ContainsFunc(h.units, func(i int) bool { return !gone[i] })
}

// newNode returns a node with the units that have a part of its devices or resources.
func (r *roomSearch) newNode(ctx context.Context, name string) *roomNode {
	n := &roomNode{attempt: r.relevant(ctx, r.fleet.newAttempt(name, r.open...))}
	n.short = r.fleet.short(r.fleet.nodes[name], r.pod, nil)
	ids := slices.SortedFunc(maps.Keys(pooled(n.slices)), DeviceID.compare)
	found := map[*unit]bool{}
	add := func(u *unit) {
		if u != nil && !found[u] {
			found[u] = true
			n.units = append(n.units, u)
		}
	}
	for _, id := range ids {
		for _, h := range r.fleet.holders[id] {
			for _, pod := range r.releases.of(h) {
				add(r.units[pod.UID])
			}
		}
	}
	for _, u := range r.byNode[name] {
		if n.short != nil || u.ends {
			add(u)
		}
	}
	slices.SortFunc(n.units, func(a, b *unit) int {
		switch {
		case a.ends == b.ends:
			return a.compare(b)
		case b.ends:
			return -1
		default:
			return 1
		}
	})
	index := map[*unit]int{}
	for i, u := range n.units {
		index[u] = i
	}
	n.ending = slices.IndexFunc(n.units, func(u *unit) bool { return u.ends })
	if n.ending < 0 {
		n.ending = len(n.units)
	}
	n.groups = make([]map[DeviceID]bool, len(n.units))
	groups := deviceGroups(n.slices)
	for _, id := range ids {
		for _, h := range r.fleet.holders[id] {
			held := heldDevice{Holder: h}
			for _, pod := range r.releases.of(h) {
				i, ok := index[r.units[pod.UID]]
				if !ok {
					held.units = nil
					break
				}
				held.units = append(held.units, i)
			}
			for _, i := range held.units {
				if n.groups[i] == nil {
					n.groups[i] = map[DeviceID]bool{}
				}
				n.groups[i][groups[id]] = true
			}
			n.held = append(n.held, held)
		}
	}
	if n.short == nil {
		n.most = mostDevices(r.open)
	}
	r.share(ctx, n)
	return n
}

// share sets the known results of a node to those of the nodes that are alike, with alike units.
func (r *roomSearch) share(ctx context.Context, n *roomNode) {
	n.known = map[string]bool{}
	if n.short != nil {
		for i := range n.units {
			n.ordered = append(n.ordered, i)
		}
		return
	}
	var b strings.Builder
	places := map[int]int{}
	for _, held := range n.held {
		b.WriteString("\n")
		for _, i := range held.units {
			if _, ok := places[i]; !ok {
				places[i] = len(n.ordered)
				n.ordered = append(n.ordered, i)
			}
			fmt.Fprintf(&b, "%d ", places[i])
		}
	}
	like, ok := r.describe(ctx, n.node, r.open...)
	if !ok {
		return
	}
	key := string(like[:]) + b.String()
	if r.known[key] == nil {
		r.known[key] = n.known
	}
	n.known = r.known[key]
}

// deviceGroups returns the group of each device, which has the devices that consume counters of the
// same sets. The allocation of a device does not depend on those of other groups.
func deviceGroups(all []*resourceapi.ResourceSlice) map[DeviceID]DeviceID {
	joined := map[DeviceID]DeviceID{}
	var groupOf func(id DeviceID) DeviceID
	groupOf = func(id DeviceID) DeviceID {
		if next, ok := joined[id]; ok {
			return groupOf(next)
		}
		return id
	}
	for _, slice := range all {
		for _, device := range slice.Spec.Devices {
			for _, c := range device.ConsumesCounters {
				// A device may have the name of a counter set, but not the space before it.
				own, other := groupOf(DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, device.Name}), groupOf(DeviceID{slice.Spec.Driver, slice.Spec.Pool.Name, " " + c.CounterSet})
				if own != other {
					joined[own] = other
				}
			}
		}
	}
	groups := map[DeviceID]DeviceID{}
	for id := range pooled(all) {
		groups[id] = groupOf(id)
	}
	return groups
}

// mostDevices returns the most devices that claims can get; 0 if it is not bounded.
func mostDevices(claims []*resourceapi.ResourceClaim) (most int) {
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			largest := 0 // of the alternatives
			for _, one := range Requests(resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{r}}) {
				if one.Exactly.AllocationMode == resourceapi.DeviceAllocationModeAll {
					return 0
				}
				largest = max(largest, int(one.Exactly.Count))
			}
			most += largest
		}
	}
	return most
}

// without returns the attempt with some units gone.
func (n *roomNode) without(gone mask) attempt {
	q := n.attempt
	q.state = NewState()
	for _, held := range n.held {
		if !held.ends(gone) {
			Count(q.state, held.Result)
		}
	}
	return q
}
