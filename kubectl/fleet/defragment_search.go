// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostPlaceless bounds the sets without places that are tried again with further pods.
const mostPlaceless = 1000

// moveSearch is a search for pods to move.
//
// The search for a room finds the smallest sets of pods with whose end the waiting pod fits. The pods of
// a set must have places, too. If they have none, further pods may move for them.
type moveSearch struct {
	*roomSearch
	claims map[types.UID][]heldClaim
	// places are the results for movers on a node, and openNodes the nodes on which a shape has a place now.
	places    map[string]bool
	openNodes map[string][]string
	// shapes are numbers of the texts of [ShapeOf], and shapeNames those of movers.
	shapes, shapeNames map[string]string
	// placeless are sets of pods without places, by the texts of tried.
	placeless []choice
	tried     map[string]bool
}

// heldClaim is a claim with the pods with the last of which it is released; none if it stays.
type heldClaim struct {
	*resourceapi.ResourceClaim
	last []*corev1.Pod
}

func (s *Search) moves(ctx context.Context, pod *corev1.Pod, rules RoomRules, claims []*resourceapi.ResourceClaim) (Moves, error) {
	m := &moveSearch{
		roomSearch: s.newRoomSearch(pod, rules, claims), claims: map[types.UID][]heldClaim{},
		places: map[string]bool{}, openNodes: map[string][]string{}, shapes: map[string]string{}, shapeNames: map[string]string{}, tried: map[string]bool{},
	}
	users := newConsumers(s.fleet.objects.Pods)
	for _, claim := range s.fleet.objects.Claims {
		if claim.Status.Allocation == nil {
			continue
		}
		pods := users.podsOf(claim)
		for _, p := range pods {
			m.claims[p.UID] = append(m.claims[p.UID], heldClaim{claim, m.releases.of(Holder{Claim: claim, Pods: pods})})
		}
	}
	nodes, fits := m.nodes(ctx, claims)
	var found *Moves
	if fits != nil {
		found = m.place(ctx, fits.node, nil)
	} else {
		m.accepts = func(ctx context.Context, c choice) bool { return m.acceptsMoves(ctx, c) }
		m.smallest(ctx, nodes)
		if m.best.node != nil {
			found = m.place(ctx, m.best.node, m.best.units())
		}
		if further := m.further(ctx); further != nil {
			found = further
		}
	}
	if found == nil {
		found = &Moves{}
	}
	found.Complete, found.Lacking = !m.cut && !m.ended(), m.lacking
	return *found, ctx.Err()
}

// units returns the units to end.
func (c choice) units() []*unit {
	var all []*unit
	for i, gone := range c.gone {
		if gone {
			all = append(all, c.node.units[i])
		}
	}
	return all
}

// acceptsMoves reports whether the pods of a choice have places.
func (m *moveSearch) acceptsMoves(ctx context.Context, c choice) bool {
	key := fmt.Sprint(c.node.node, c.gone)
	if known, ok := m.tried[key]; ok {
		return known
	}
	for i, gone := range c.gone {
		if gone {
			c.gone[i] = false
			isSmaller := m.fits(ctx, c.node, c.gone)
			c.gone[i] = true
			if isSmaller {
				return false // a smaller set has been tried
			}
		}
	}
	m.tried[key] = m.place(ctx, c.node, c.units()) != nil
	switch {
	case m.tried[key]:
	case len(m.placeless) < mostPlaceless:
		m.placeless = append(m.placeless, c)
	default:
		m.cut = true
	}
	return m.tried[key]
}

// further returns the moves of a smaller set than the best one, in which pods move only to let others
// have their place.
func (m *moveSearch) further(ctx context.Context) *Moves {
	var units []*unit
	most := 0
	for _, pod := range m.fleet.objects.Pods {
		if u := m.units[pod.UID]; u != nil && u.pods[0] == pod && slices.ContainsFunc(u.pods, func(p *corev1.Pod) bool { return m.claims[p.UID] != nil }) {
			units = append(units, u)
			most += len(u.pods)
		}
	}
	slices.SortFunc(units, (*unit).compare)
	if m.best.node != nil {
		most = m.best.pods - 1
	}
	for pods := 2; pods <= most; pods++ {
		for _, c := range m.placeless {
			b := branch{roomSearch: m.roomSearch, budgets: map[*policyv1.PodDisruptionBudget]int32{}}
			own := c.units()
			for _, u := range own {
				b.count(u)
			}
			if found := m.extend(ctx, &b, c.node, own, units, pods-c.pods); found != nil {
				return found
			}
		}
	}
	return nil
}

// extend returns the moves of a set with that number of further pods.
func (m *moveSearch) extend(ctx context.Context, b *branch, n *roomNode, own, others []*unit, pods int) *Moves {
	if m.ended() || ctx.Err() != nil {
		m.cut = true
		return nil
	}
	for i, u := range others {
		if len(u.pods) > pods || slices.Contains(own, u) || !b.count(u) {
			continue
		}
		all := append(slices.Clone(own), u)
		var found *Moves
		if len(u.pods) == pods {
			found = m.place(ctx, n, all)
		} else {
			found = m.extend(ctx, b, n, all, others[i+1:], pods-len(u.pods))
		}
		if found != nil {
			return found
		}
		b.uncount(u)
	}
	return nil
}

// place returns the moves of some units, after which the waiting pod is on the node; nil if they have no
// places together.
func (m *moveSearch) place(ctx context.Context, n *roomNode, units []*unit) *Moves {
	p := &placement{moveSearch: m, target: n.node, gone: map[types.UID]bool{}, at: map[string][]*mover{}}
	for _, u := range units {
		for _, pod := range u.pods {
			p.pods, p.gone[pod.UID] = append(p.pods, pod), true
		}
	}
	slices.SortFunc(p.pods, ByName)
	for _, v := range p.newMovers() {
		if v.nodes = p.nodesOf(ctx, v); v.nodes == nil {
			return nil
		}
		p.movers = append(p.movers, v)
	}
	slices.SortStableFunc(p.movers, func(a, b *mover) int {
		return cmp.Or(cmp.Compare(len(a.nodes), len(b.nodes)), cmp.Compare(a.shape, b.shape))
	})
	return p.from(ctx, 0, 0)
}
