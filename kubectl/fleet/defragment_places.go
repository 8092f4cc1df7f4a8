// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mover is pods that move to a node together, because they share claims.
type mover struct {
	pods []*corev1.Pod
	// claims get another allocation, and kept ones stay.
	claims, kept []*resourceapi.ResourceClaim
	shape        string
	nodes        []string
}

// placement is a search for places of some pods.
type placement struct {
	*moveSearch
	target string
	pods   []*corev1.Pod
	gone   map[types.UID]bool
	movers []*mover
	// at are the movers with a place.
	at map[string][]*mover
}

// isReleased reports whether a claim is released with the pods.
func (p *placement) isReleased(claim heldClaim) bool {
	return claim.last != nil && !slices.ContainsFunc(claim.last, func(pod *corev1.Pod) bool { return !p.gone[pod.UID] })
}

// newMovers returns the movers of all pods.
func (p *placement) newMovers() []*mover {
	var all []*mover
	of := map[*resourceapi.ResourceClaim]*mover{}
	for _, pod := range p.pods {
		own := *pod
		own.Spec.NodeName = ""
		v := &mover{pods: []*corev1.Pod{&own}}
		for _, claim := range p.claims[pod.UID] {
			other := of[claim.ResourceClaim]
			switch {
			case !p.isReleased(claim):
				v.kept = append(v.kept, claim.ResourceClaim)
				continue
			case other == nil:
				v.claims = append(v.claims, claim.ResourceClaim)
			case other != v:
				v.pods, v.claims, v.kept = append(v.pods, other.pods...), append(v.claims, other.claims...), append(v.kept, other.kept...)
				all = slices.DeleteFunc(all, func(x *mover) bool { return x == other })
			}
			for _, c := range v.claims {
				of[c] = v
			}
		}
		all = append(all, v)
	}
	for _, v := range all {
		v.shape = p.shape(v)
	}
	return all
}

// shape returns a text that is the same for movers that fit on the same nodes.
func (m *moveSearch) shape(v *mover) string {
	var b strings.Builder
	for _, pod := range v.pods {
		fmt.Fprintf(&b, "%s ", pod.UID)
	}
	for _, claim := range v.kept {
		fmt.Fprintf(&b, "/%s", claim.UID)
	}
	name := b.String()
	if m.shapeNames[name] == "" {
		var text strings.Builder
		for i, pod := range v.pods {
			var claims []*resourceapi.ResourceClaim
			if i == 0 {
				claims = slices.Concat(withoutStatus(v.claims), v.kept)
			}
			shape, err := ShapeOf(pod, claims)
			if err != nil {
				shape = string(pod.UID)
			}
			text.WriteString(shape)
		}
		if m.shapes[text.String()] == "" {
			m.shapes[text.String()] = fmt.Sprint(len(m.shapes) + 1)
		}
		m.shapeNames[name] = m.shapes[text.String()]
	}
	return m.shapeNames[name]
}

func withoutStatus(claims []*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
	return Each(claims, func(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		own := *claim
		own.Status = resourceapi.ResourceClaimStatus{}
		return &own
	})
}

// nodesOf returns the nodes on which a mover has a place if the others have none.
func (p *placement) nodesOf(ctx context.Context, v *mover) []string {
	if _, ok := p.openNodes[v.shape]; !ok {
		before := placement{moveSearch: p.moveSearch}
		p.openNodes[v.shape] = nil
		for _, node := range p.fleet.NodeNames() {
			if before.fit(ctx, node, v) {
				p.openNodes[v.shape] = append(p.openNodes[v.shape], node)
			}
		}
	}
	nodes := slices.DeleteFunc(slices.Clone(p.openNodes[v.shape]), p.changes)
	for _, node := range p.fleet.NodeNames() {
		if p.changes(node) && p.fit(ctx, node, v) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// changes reports whether the waiting pod and the end of the pods may change the devices or resources of
// a node.
func (p *placement) changes(node string) bool {
	return node == p.target || len(p.fleet.published[""]) > 0 || slices.ContainsFunc(p.pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}

// from returns the moves with places for the movers from an index on. Movers of one shape have their
// nodes in order.
func (p *placement) from(ctx context.Context, i, first int) *Moves {
	if i == len(p.movers) {
		return p.finish(ctx)
	}
	v := p.movers[i]
	for at := first; at < len(v.nodes); at++ {
		node := v.nodes[at]
		before := p.at[node]
		if len(before) > 0 && !p.fit(ctx, node, append(before[:len(before):len(before)], v)...) {
			continue
		}
		p.at[node] = append(before[:len(before):len(before)], v)
		next := 0
		if i+1 < len(p.movers) && p.movers[i+1].shape == v.shape {
			next = at
		}
		if found := p.from(ctx, i+1, next); found != nil {
			return found
		}
		p.at[node] = before
		if p.ended() || ctx.Err() != nil {
			p.cut = true
			return nil
		}
	}
	return nil
}

// fit reports whether movers have places on a node, with the waiting pod if it is its node.
func (p *placement) fit(ctx context.Context, node string, movers ...*mover) bool {
	key := p.key(node, movers)
	if known, ok := p.places[key]; ok {
		return known
	}
	if p.ended() {
		p.cut = true
		return false
	}
	found, err := p.allocateOn(ctx, node, movers, nil)
	if errors.Is(err, gpu.ErrTimeout) {
		p.cut = true
	}
	p.places[key] = found != nil
	return found != nil
}

func (p *placement) key(node string, movers []*mover) string {
	var b strings.Builder
	fmt.Fprint(&b, node, " ", node == p.target)
	if p.changes(node) {
		for _, pod := range p.pods {
			if pod.Spec.NodeName == node || len(p.fleet.published[""]) > 0 {
				fmt.Fprint(&b, " ", pod.UID)
			}
		}
	}
	shapes := Each(movers, func(v *mover) string { return v.shape })
	slices.Sort(shapes)
	fmt.Fprint(&b, shapes)
	return b.String()
}

// allocateOn returns an allocation for each claim of the movers, after those of the waiting pod if it is its node;
// nil if they have no places. further are allocations of other nodes.
func (p *placement) allocateOn(ctx context.Context, node string, movers []*mover, further []resourceapi.AllocationResult) ([]resourceapi.AllocationResult, error) {
	if p.fleet.nodes[node] == nil {
		return nil, nil
	}
	var claims []*resourceapi.ResourceClaim
	wanted := corev1.ResourceList{}
	if node == p.target {
		claims = p.open
		addRequested(wanted, p.pod)
	}
	for _, v := range movers {
		claims = append(claims[:len(claims):len(claims)], withoutStatus(v.claims)...)
		for _, pod := range v.pods {
			addRequested(wanted, pod)
			if len(p.fleet.ExcludesForGood(node, pod)) > 0 {
				return nil, nil
			}
		}
		if len(p.fleet.allocatedElsewhere(node, v.kept)) > 0 {
			return nil, nil
		}
	}
	if len(p.fleet.lacks(p.fleet.nodes[node], wanted, p.pods)) > 0 {
		return nil, nil
	}
	if len(claims) == 0 {
		return []resourceapi.AllocationResult{}, nil
	}
	q := p.fleet.newAttempt(node, claims...)
	q.state = NewState()
	for id := range pooled(q.slices) {
		for _, h := range p.fleet.holders[id] {
			if !slices.ContainsFunc(h.Pods, func(pod *corev1.Pod) bool { return p.gone[pod.UID] }) || !p.isReleased(heldClaim{h.Claim, p.releases.of(h)}) {
				Count(q.state, h.Result)
			}
		}
	}
	for _, allocation := range further {
		for _, result := range allocation.Devices.Results {
			Count(q.state, result)
		}
	}
	return p.allocate(ctx, p.relevant(ctx, q))
}

// finish returns the moves to the places. Nodes may have devices in common, so it allocates on one after
// the other.
func (p *placement) finish(ctx context.Context) *Moves {
	moves := &Moves{Node: p.target}
	var further []resourceapi.AllocationResult
	for _, node := range p.fleet.NodeNames() {
		if node != p.target && len(p.at[node]) == 0 {
			continue
		}
		found, err := p.allocateOn(ctx, node, p.at[node], further)
		if err != nil || found == nil {
			return nil
		}
		further = append(further, found...)
		if node == p.target {
			moves.Allocations, found = found[:len(p.open)], found[len(p.open):]
		}
		for _, v := range p.at[node] {
			var claims []*resourceapi.ResourceClaim
			for i, claim := range v.claims {
				own := *claim
				own.Status.Allocation = &found[i]
				claims = append(claims, &own)
			}
			found = found[len(claims):]
			for _, pod := range v.pods {
				i := slices.IndexFunc(p.pods, func(before *corev1.Pod) bool { return before.UID == pod.UID })
				move := Move{Pod: p.pods[i], Node: node}
				for _, claim := range claims {
					if slices.ContainsFunc(p.claims[pod.UID], func(c heldClaim) bool { return c.UID == claim.UID }) {
						move.Claims = append(move.Claims, claim)
					}
				}
				moves.Pods = append(moves.Pods, move)
			}
		}
	}
	slices.SortFunc(moves.Pods, func(a, b Move) int { return ByName(a.Pod, b.Pod) })
	return moves
}
