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
	nodes []string
	// shapes are the shapes of pods. Pods only come, so a full node stays full.
	shapes map[string]*planShape
}

// planShape is the state of a plan for pods that fit on the same nodes.
type planShape struct {
	// full is the number of the first nodes that are full.
	full int
	// unended counts the searches that reached their limit.
	unended int
}

// NewPlan returns a plan that begins with the current fleet, which it does not change.
func (f *Fleet) NewPlan() *Plan {
	own := *f
	own.holders, own.requested = maps.Clone(f.holders), map[string]corev1.ResourceList{}
	for node, amounts := range f.requested {
		own.requested[node] = amounts.DeepCopy()
	}
	return &Plan{fleet: &own, nodes: f.NodeNames(), shapes: map[string]*planShape{}}
}

// Fleet returns the fleet with the pods that are placed. It changes with the plan.
func (p *Plan) Fleet() *Fleet { return p.fleet }

// Place places a pod on the first node on which it and its claims fit, in the order of the nodes'
// names. It returns the name of the node, or "" if they fit on none. It allocates the claims that have
// no allocation. The error is the one of the context.
func (p *Plan) Place(ctx context.Context, pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) (string, error) {
	key, err := ShapeOf(pod, claims)
	if err != nil {
		return "", err
	}
	if p.shapes[key] == nil {
		p.shapes[key] = &planShape{}
	}
	for shape := p.shapes[key]; shape.full < len(p.nodes) && shape.unended < mostUnended; shape.full++ {
		node := p.nodes[shape.full]
		placed, err := p.place(ctx, node, pod, claims)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case placed:
			return node, nil
		case errors.Is(err, gpu.ErrTimeout):
			shape.unended++
		}
	}
	return "", nil
}

// ShapeOf returns a text that is the same for pods that fit on the same nodes.
func ShapeOf(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) (string, error) {
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
