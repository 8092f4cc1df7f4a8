// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
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
	r := s.newRoomSearch(pod, rules, claims)
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
	// accepts reports whether a choice is possible that suffices for the pod; nil if all are.
	accepts func(ctx context.Context, c choice) bool
	// known are the results of [roomNode] by the likeness of nodes.
	known map[string]map[string]bool
	// cut is true if something was not examined. unended counts the runs that reached their limit.
	cut     bool
	unended int
}

func (s *Search) newRoomSearch(pod *corev1.Pod, rules RoomRules, claims []*resourceapi.ResourceClaim) *roomSearch {
	r := &roomSearch{Search: s, pod: pod, open: withoutAllocation(claims), units: s.fleet.units(pod, rules), releases: newReleases(s.fleet.objects.Pods), byNode: map[string][]*unit{}, known: map[string]map[string]bool{}}
	for _, p := range s.fleet.objects.Pods {
		if u := r.units[p.UID]; u != nil && !slices.Contains(r.byNode[p.Spec.NodeName], u) {
			r.byNode[p.Spec.NodeName] = append(r.byNode[p.Spec.NodeName], u)
		}
	}
	return r
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

// nodes returns the nodes on which the end of all pods that may end lets the pod run. fits is set if the
// end of pods is not needed.
func (r *roomSearch) nodes(ctx context.Context, claims []*resourceapi.ResourceClaim) (nodes []*roomNode, fits *choice) {
	for _, name := range r.fleet.NodeNames() {
		if r.ended() || ctx.Err() != nil {
			r.cut = true
			return nodes, fits
		}
		if r.fleet.nodes[name] == nil || len(r.fleet.ExcludesForGood(name, r.pod)) > 0 || len(r.fleet.allocatedElsewhere(name, claims)) > 0 {
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
	r.keep(ctx, choice{n, b.gone, c})
}

// keep sets best to the choice if it is cheaper.
func (r *roomSearch) keep(ctx context.Context, c choice) {
	if r.best.node != nil && c.compare(r.best.cost) >= 0 {
		return
	}
	c.gone = slices.Clone(c.gone)
	if r.accepts == nil || r.accepts(ctx, c) {
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
	// A set that suffices and is not accepted is part of many.
	if b.accepts != nil && c.pods > 0 && b.fits(ctx, b.node, b.gone) {
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
				b.keep(ctx, choice{b.node, b.gone, next})
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
		slices.SortFunc(pods, ByName)
	}
}
