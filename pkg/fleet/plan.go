// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Plan places pods on the nodes of a fleet, one after the other. Its methods must not run at
// the same time.
type Plan struct {
	fleet *Fleet
	// full are the nodes without free devices for a shape of pod. Pods only come.
	full map[string]map[string]bool
	// unended counts the searches of a shape that reached their limit.
	unended map[string]int
}

// NewPlan returns a plan that begins with the current fleet, which it does not change.
func (f *Fleet) NewPlan() *Plan {
	own := *f
	own.holders, own.requested = maps.Clone(f.holders), map[string]corev1.ResourceList{}
	for node, amounts := range f.requested {
		own.requested[node] = amounts.DeepCopy()
	}
	return &Plan{fleet: &own, full: map[string]map[string]bool{}, unended: map[string]int{}}
}

// Fleet returns the fleet with the pods that are placed. It changes with the plan.
func (p *Plan) Fleet() *Fleet { return p.fleet }

// Place places a pod on the first node on which it and its claims fit. It tries the nodes
// in the order of their names. It returns the name of the node, or "" if they fit on none.
// It allocates the claims that have no allocation. The error is the one of the context.
func (p *Plan) Place(ctx context.Context, pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) (string, error) {
	shape, err := shapeOf(pod, claims)
	if err != nil {
		return "", err
	}
	for _, node := range p.fleet.NodeNames() {
		if p.full[shape][node] || p.unended[shape] == mostUnended {
			continue
		}
		placed, err := p.place(ctx, node, pod, claims)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case placed:
			return node, nil
		case errors.Is(err, gpu.ErrTimeout):
			p.unended[shape]++
		}
		if p.full[shape] == nil {
			p.full[shape] = map[string]bool{}
		}
		p.full[shape][node] = true
	}
	return "", nil
}

// shapeOf returns a text that is the same for pods that fit on the same nodes.
func shapeOf(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) (string, error) {
	var specs []any
	for _, claim := range claims {
		specs = append(specs, claim.Spec, claim.Status.Allocation)
	}
	text, err := json.Marshal([]any{pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations, requested(pod), specs})
	return string(text), err
}

func (p *Plan) place(ctx context.Context, node string, pod *corev1.Pod, claims []*resourceapi.ResourceClaim) (bool, error) {
	if len(p.fleet.Excludes(node, pod)) > 0 || len(p.fleet.allocatedElsewhere(node, claims)) > 0 {
		return false, nil
	}
	if open := withoutAllocation(claims); len(open) > 0 {
		found, err := p.fleet.Fit(ctx, node, open...)
		if found == nil {
			return false, err
		}
		for i, claim := range open {
			claim.Status.Allocation = &found[i]
			for _, result := range found[i].Devices.Results {
				id := DeviceID{result.Driver, result.Pool, result.Device}
				own := p.fleet.holders[id]
				p.fleet.holders[id] = append(own[:len(own):len(own)], Holder{Claim: claim, Result: result, Pods: []*corev1.Pod{pod}})
			}
		}
	}
	p.fleet.addPod(node, pod)
	return true, nil
}
