// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mostGreedy bounds the nodes on which a first answer is found before the smallest one is searched.
const mostGreedy = 16

// Room returns the fewest pods whose end lets a waiting pod with its claims run on a node, proven by
// the allocator. Of several such sets it returns the one with the lowest priority, then the one with
// the youngest pods. Each set is admitted by the rules. The error is the one of the context.
func (s *Search) Room(ctx context.Context, pod *corev1.Pod, rules RoomRules, claims ...*resourceapi.ResourceClaim) (Room, error) {
	r := roomSearch{Search: s, pod: pod, open: withoutAllocation(claims), units: s.fleet.units(pod, rules), releases: newReleases(s.fleet.objects.Pods), byNode: map[string][]*unit{}, known: map[string]map[string]bool{}}
	for _, p := range s.fleet.objects.Pods {
		if u := r.units[p.UID]; u != nil && !slices.Contains(r.byNode[p.Spec.NodeName], u) {
			r.byNode[p.Spec.NodeName] = append(r.byNode[p.Spec.NodeName], u)
		}
	}
	nodes, fits := r.nodes(ctx, claims)
	if fits == nil {
		r.smallest(ctx, nodes)
	} else {
		r.best = *fits
	}
	room := Room{Complete: !r.cut && !s.ended(), Lacking: r.lacking}
	if r.best.node != nil {
		r.finish(ctx, &room)
	}
	return room, ctx.Err()
}

// roomSearch is a search for the pods to end.
type roomSearch struct {
	*Search
	pod      *corev1.Pod
	open     []*resourceapi.ResourceClaim
	units    map[types.UID]*unit
	byNode   map[string][]*unit
	releases releases
	best     choice
	lacking  []Verdict
	// known are the results of [roomNode] by the likeness of nodes.
	known map[string]map[string]bool
	// cut is true if something was not examined. unended counts the runs that reached their limit.
	cut     bool
	unended int
}

// choice is units of a node to end.
type choice struct {
	node *roomNode
	gone mask
	cost
}

// mask has the units of a node that are gone.
type mask []bool

// cost is what the end of pods costs. Each part only grows with further pods.
type cost struct {
	pods     int
	priority int32
	started  time.Time
}

func (c cost) with(u *unit) cost {
	if c.pods == 0 {
		return cost{len(u.pods), u.priority, u.started}
	}
	c.pods, c.priority = c.pods+len(u.pods), max(c.priority, u.priority)
	if u.started.Before(c.started) {
		c.started = u.started
	}
	return c
}

// compare orders costs: fewer pods, then a lower priority, then younger pods.
func (c cost) compare(other cost) int {
	return cmp.Or(cmp.Compare(c.pods, other.pods), cmp.Compare(c.priority, other.priority), other.started.Compare(c.started))
}

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

// nodes returns the nodes on which the end of all pods that may end lets the pod run. fits is set if the
// end of pods is not needed.
func (r *roomSearch) nodes(ctx context.Context, claims []*resourceapi.ResourceClaim) (nodes []*roomNode, fits *choice) {
	for _, name := range r.fleet.NodeNames() {
		if r.ended() || ctx.Err() != nil {
			r.cut = true
			return nodes, fits
		}
		if r.fleet.nodes[name] == nil || len(r.fleet.excludesForGood(name, r.pod)) > 0 || len(r.fleet.allocatedElsewhere(name, claims)) > 0 {
			continue
		}
		n := r.newNode(ctx, name)
		none, ending, all := make(mask, len(n.units)), make(mask, len(n.units)), make(mask, len(n.units))
		for i := range n.units {
			ending[i], all[i] = i >= n.ending, true
		}
		devices := n.short == nil && r.fits(ctx, n, none) || n.short != nil && r.try(ctx, n.without(none))
		switch {
		case devices && n.short == nil:
			return nil, &choice{node: n, gone: none}
		case fits != nil:
		case n.ending < len(n.units) && r.fits(ctx, n, ending):
			fits = &choice{node: n, gone: ending}
		case devices:
			r.lacking = append(r.lacking, Verdict{Node: name, Excluded: n.short})
		case r.fits(ctx, n, all):
			nodes = append(nodes, n)
		}
	}
	return nodes, fits
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
		if a.ends != b.ends {
			return map[bool]int{false: -1, true: 1}[a.ends]
		}
		return a.compare(b)
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
func mostDevices(claims []*resourceapi.ResourceClaim) int {
	most := 0
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			one := 0
			for _, r := range (attempt{claims: []*resourceapi.ResourceClaim{{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}}}}}).requests() {
				if r.exactly.AllocationMode == resourceapi.DeviceAllocationModeAll {
					return 0
				}
				one = max(one, int(r.exactly.Count))
			}
			most += one
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

// fits reports whether the pod can run on the node with some units gone.
func (r *roomSearch) fits(ctx context.Context, n *roomNode, gone mask) bool {
	key := make([]byte, len(n.ordered))
	for at, i := range n.ordered {
		if gone[i] {
			key[at] = 1
		}
	}
	if known, ok := n.known[string(key)]; ok {
		return known
	}
	if r.ended() {
		r.cut = true
		return false
	}
	var pods []*corev1.Pod
	for i, is := range gone {
		if is {
			pods = append(pods, n.units[i].pods...)
		}
	}
	ok := (n.short == nil || r.fleet.short(r.fleet.nodes[n.node], r.pod, pods) == nil) && r.try(ctx, n.without(gone))
	n.known[string(key)] = ok
	return ok
}

// try reports whether the allocator finds devices.
func (r *roomSearch) try(ctx context.Context, q attempt) bool {
	found, err := r.allocate(ctx, q)
	if errors.Is(err, gpu.ErrTimeout) {
		r.cut = true
		if r.unended++; r.unended == mostUnended {
			r.left = 0
		}
	}
	return found != nil
}

// smallest sets best to the cheapest choice on the nodes.
func (r *roomSearch) smallest(ctx context.Context, nodes []*roomNode) {
	for _, n := range nodes[:min(len(nodes), mostGreedy)] {
		r.greedy(ctx, n)
	}
	most := 0
	for _, n := range nodes {
		all := cost{}
		for _, u := range n.units[:n.ending] {
			all = all.with(u)
		}
		most = max(most, all.pods)
	}
	for pods := 1; pods <= most && (r.best.node == nil || pods <= r.best.pods) && !r.ended() && ctx.Err() == nil; pods++ {
		for _, n := range nodes {
			gone := make(mask, len(n.units))
			for i := n.ending; i < len(gone); i++ {
				gone[i] = true
			}
			b := branch{roomSearch: r, node: n, pods: pods, gone: gone, budgets: map[*policyv1.PodDisruptionBudget]int32{}}
			b.from(ctx, 0, cost{}, nil)
		}
	}
}

// greedy sets best to a choice on the node that needs all of its units, if it is cheaper.
func (r *roomSearch) greedy(ctx context.Context, n *roomNode) {
	b := branch{roomSearch: r, node: n, gone: make(mask, len(n.units)), budgets: map[*policyv1.PodDisruptionBudget]int32{}}
	for i, u := range n.units {
		b.gone[i] = u.ends || b.count(u)
	}
	if !r.fits(ctx, n, b.gone) {
		return
	}
	c := cost{}
	for i := n.ending - 1; i >= 0; i-- {
		if !b.gone[i] {
			continue
		}
		if b.gone[i] = false; !r.fits(ctx, n, b.gone) {
			b.gone[i] = true
			c = c.with(n.units[i])
		}
	}
	r.keep(choice{n, b.gone, c})
}

// keep sets best to the choice if it is cheaper.
func (r *roomSearch) keep(c choice) {
	if r.best.node == nil || c.compare(r.best.cost) < 0 {
		c.gone = slices.Clone(c.gone)
		r.best = c
	}
}

// branch is the search for a number of pods on a node.
type branch struct {
	*roomSearch
	node    *roomNode
	pods    int
	gone    mask
	budgets map[*policyv1.PodDisruptionBudget]int32
}

// count counts the end of a unit in its budgets. It returns false if one of them does not admit it.
func (b *branch) count(u *unit) bool {
	for pdb, n := range u.budgets {
		if b.budgets[pdb]+n > Disruptions(pdb) {
			return false
		}
	}
	for pdb, n := range u.budgets {
		b.budgets[pdb] += n
	}
	return true
}

func (b *branch) uncount(u *unit) {
	for pdb, n := range u.budgets {
		b.budgets[pdb] -= n
	}
}

// from tries all units from the one with the index on, besides those that are gone. groups are the groups
// of devices of units with parts of one group only.
func (b *branch) from(ctx context.Context, first int, c cost, groups map[DeviceID]bool) {
	if b.ended() || ctx.Err() != nil {
		return
	}
	rest := b.rest(first, groups)
	// Below are many sets: none suffices if all units together do not.
	if b.pods-c.pods > 1 && len(rest) > 1 {
		all := slices.Clone(b.gone)
		for _, i := range rest {
			all[i] = true
		}
		if !b.fits(ctx, b.node, all) {
			return
		}
	}
	for at, i := range rest {
		u := b.node.units[i]
		next := c.with(u)
		if next.pods > b.pods {
			continue
		}
		// A set that costs as much as the best one is not needed either.
		if b.best.node != nil && b.best.pods == b.pods && (cost{b.pods, next.priority, next.started}).compare(b.best.cost) >= 0 || !b.count(u) {
			continue
		}
		b.gone[i] = true
		if next.pods == b.pods {
			if b.fits(ctx, b.node, b.gone) {
				b.keep(choice{b.node, b.gone, next})
			}
		} else {
			b.from(ctx, i+1, next, b.touched(groups, i))
		}
		b.gone[i] = false
		b.uncount(u)
		// Without this unit, the others may not suffice together.
		if b.pods-c.pods > 1 && len(rest)-at > 2 && !b.suffice(ctx, rest[at+1:]) {
			return
		}
	}
}

// suffice reports whether the pod fits without all of some units and those that are gone.
func (b *branch) suffice(ctx context.Context, units []int) bool {
	all := slices.Clone(b.gone)
	for _, i := range units {
		all[i] = true
	}
	return b.fits(ctx, b.node, all)
}

// touched returns the groups with those of a unit that has parts of one group only.
func (b *branch) touched(groups map[DeviceID]bool, i int) map[DeviceID]bool {
	own := b.node.groups[i]
	if len(own) != 1 {
		return groups
	}
	all := maps.Clone(groups)
	if all == nil {
		all = map[DeviceID]bool{}
	}
	maps.Copy(all, own)
	return all
}

// rest returns the units from an index on that can be in a smallest set with units of the groups.
func (b *branch) rest(first int, groups map[DeviceID]bool) []int {
	var rest []int
	full := b.node.most > 0 && len(groups) >= b.node.most
	for i := first; i < b.node.ending; i++ {
		own, isKnown := b.node.groups[i], true
		if full {
			isKnown = false
			for g := range own {
				isKnown = isKnown || groups[g]
			}
		}
		if isKnown {
			rest = append(rest, i)
		}
	}
	return rest
}

// finish writes the best choice, and tries again without pods that end already.
func (r *roomSearch) finish(ctx context.Context, room *Room) {
	n, gone := r.best.node, r.best.gone
	for i := n.ending; i < len(gone); i++ {
		if gone[i] {
			gone[i] = false
			gone[i] = !r.fits(ctx, n, gone)
		}
	}
	found, err := r.fleet.allocate(ctx, n.without(gone))
	if err != nil || found == nil {
		return
	}
	room.Node, room.Allocations = n.node, found
	for _, held := range n.held {
		if held.ends(gone) && !slices.Contains(room.Released, held.Claim) {
			room.Released = append(room.Released, held.Claim)
		}
	}
	for i, u := range n.units {
		switch {
		case gone[i] && u.ends:
			room.Ending = append(room.Ending, u.pods...)
		case gone[i]:
			room.Pods = append(room.Pods, u.pods...)
		}
	}
	for _, pods := range [][]*corev1.Pod{room.Pods, room.Ending} {
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
}
