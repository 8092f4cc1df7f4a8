// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// In random fleets, the waiting pod and all moved pods have the devices of the answer together, the rules
// admit the moves, and an exhaustive search finds no smaller set of pods.
func TestDefragmentInRandomFleets(t *testing.T) {
	randomRooms(t, (*randomRoom).checkMoves, "1 pod", "nothing")
}

// checkMoves moves pods for a waiting pod. It returns the answer in words.
func (r *randomRoom) checkMoves() string {
	r.fill(20)
	r.thin(4 + r.IntN(6))
	r.claim, r.waiting = fleettest.Claim("new", r.words()), r.pod("new", "new")
	r.waiting.DeletionTimestamp, r.waiting.OwnerReferences = nil, nil
	for try := 0; try < 9 && (r.movable(nil, nil) != "" || r.movable(nil, r.world.Pods) == ""); try++ {
		r.claim = fleettest.Claim("new", r.words())
	}
	moves, err := r.fleet(r.world.Objects).NewDefragmentation("", r.budgets).Place(r.Context(), time.Hour, r.waiting, r.claim)
	require.NoError(r, err)
	if !moves.Complete {
		r.Error("the search is not complete")
	}
	var moved, live, ending []*corev1.Pod
	for _, move := range moves.Pods {
		moved = append(moved, move.Pod)
	}
	for _, pod := range r.world.Pods {
		if pod.DeletionTimestamp != nil {
			ending = append(ending, pod)
		} else {
			live = append(live, pod)
		}
	}
	rules := fleet.RoomRules{Budgets: r.budgets, AnyPriority: true}
	if moves.Node != "" {
		r.checkPlaces(moves, r.without(slices.Concat(moved, ending)))
		if !r.admits(rules, moved) {
			r.Errorf("the rules do not admit the end of %v", namesOf(moved))
		}
	}
	most := len(moved) - 1
	if moves.Node == "" {
		most = 3
	}
	for set := range 1 << len(live) {
		var pods []*corev1.Pod
		for i, pod := range live {
			if set>>i&1 == 1 {
				pods = append(pods, pod)
			}
		}
		if len(moves.Lacking) > 0 || len(pods) > most || !r.admits(rules, pods) {
			continue
		}
		if node := r.movable(pods, slices.Concat(pods, ending)); node != "" {
			r.Errorf("the answer is %q on %q, and with %q moved the pod fits on %s", namesOf(moved), moves.Node, namesOf(pods), node)
		}
	}
	isNeeded := func(pod *corev1.Pod) bool {
		others := slices.DeleteFunc(slices.Clone(moved), func(other *corev1.Pod) bool { return other == pod })
		return !slices.Contains(r.fitsOn(slices.Concat(others, ending)), moves.Node)
	}
	switch {
	case moves.Node == "":
		return "nothing"
	case len(moved) < 2:
		return fmt.Sprintf("%d pod", len(moved))
	case slices.ContainsFunc(moved, func(pod *corev1.Pod) bool { return !isNeeded(pod) }):
		return "further pods"
	default:
		return "several pods"
	}
}

// thin removes pods, which leaves holes, until the fleet has that number.
func (r *randomRoom) thin(most int) {
	w := r.world
	for len(w.Pods) > most {
		i := r.IntN(len(w.Claims))
		users := fleet.Consumers(w.Claims[i], w.Pods)
		w.Pods = slices.DeleteFunc(w.Pods, func(pod *corev1.Pod) bool { return slices.Contains(users, pod) })
		w.Claims = slices.Delete(w.Claims, i, i+1)
	}
}

// checkPlaces checks that each claim of the answer fits on its devices beside all others.
func (r *randomRoom) checkPlaces(moves fleet.Moves, objects fleet.Objects) {
	own := *r.claim
	own.Status.Allocation = &moves.Allocations[0]
	placed := map[*resourceapi.ResourceClaim]string{&own: moves.Node}
	pods := map[string][]*corev1.Pod{moves.Node: {r.waiting}}
	for _, move := range moves.Pods {
		pods[move.Node] = append(pods[move.Node], move.Pod)
		for _, claim := range move.Claims {
			placed[claim] = move.Node
		}
	}
	for node, own := range pods {
		if !r.hasCPU(node, objects, own) {
			r.Errorf("node %s has too little cpu", node)
		}
	}
	for claim, node := range placed {
		one := objects
		one.Claims = slices.Clone(objects.Claims)
		held := map[string]bool{}
		for other := range placed {
			if other != claim && other.Name != claim.Name {
				one.Claims = append(one.Claims, other)
			}
		}
		for _, c := range append([]*resourceapi.ResourceClaim{claim}, one.Claims...) {
			for _, result := range c.Status.Allocation.Devices.Results {
				held[result.Pool+"/"+result.Device] = true
			}
		}
		one.Slices = nil
		for _, slice := range objects.Slices {
			slice = slice.DeepCopy()
			slice.Spec.Devices = slices.DeleteFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return !held[slice.Spec.Pool.Name+"/"+d.Name] })
			one.Slices = append(one.Slices, slice)
		}
		again := *claim
		again.Status = resourceapi.ResourceClaimStatus{}
		if found, err := r.fleet(one).Fit(r.Context(), node, &again); err != nil || found == nil {
			r.Errorf("claim %s does not fit on its devices of node %s: %v", claim.Name, node, err)
		}
	}
}

// hasCPU reports whether a node has the cpu for pods. A node may lack some already.
func (r *randomRoom) hasCPU(node string, objects fleet.Objects, pods []*corev1.Pod) bool {
	used := func(pods []*corev1.Pod, counts func(*corev1.Pod) bool) (cpus int64) {
		for _, pod := range pods {
			if counts(pod) {
				cpus += pod.Spec.Containers[0].Resources.Requests.Cpu().Value()
			}
		}
		return cpus
	}
	wanted := used(pods, func(*corev1.Pod) bool { return true })
	return wanted == 0 || wanted+used(objects.Pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }) <= 8
}

// movable returns the node of the waiting pod if all pods have places with it after the end of some.
func (r *randomRoom) movable(pods, ended []*corev1.Pod) string {
	type item struct {
		claim *resourceapi.ResourceClaim
		pods  []*corev1.Pod
		node  string // of a claim that stays
	}
	objects := r.without(ended)
	items := []item{{claim: r.claim, pods: []*corev1.Pod{r.waiting}}}
	for _, claim := range r.world.Claims {
		own := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return *pod.Spec.ResourceClaims[0].ResourceClaimName != claim.Name })
		switch again := *claim; {
		case len(own) == 0:
		case slices.Contains(objects.Claims, claim):
			items = append(items, item{node: own[0].Spec.NodeName, pods: own})
		default:
			again.Status = resourceapi.ResourceClaimStatus{}
			items = append(items, item{claim: &again, pods: own})
		}
	}
	f, known := r.fleet(objects), map[string]bool{}
	fits := func(node string, on []int) bool {
		key := fmt.Sprint(node, on)
		if fits, ok := known[key]; ok {
			return fits
		}
		var claims []*resourceapi.ResourceClaim
		var pods []*corev1.Pod
		for _, i := range on {
			pods = append(pods, items[i].pods...)
			if items[i].claim != nil {
				claims = append(claims, items[i].claim)
			}
		}
		known[key] = r.hasCPU(node, objects, pods)
		if known[key] && len(claims) > 0 {
			found, err := f.Fit(r.Context(), node, claims...)
			require.NoError(r, err)
			known[key] = found != nil
		}
		return known[key]
	}
	at := map[string][]int{}
	var from func(i int) bool
	from = func(i int) bool {
		if i == len(items) {
			return true
		}
		for _, node := range r.world.Nodes {
			before := at[node.Name]
			if items[i].node != "" && items[i].node != node.Name {
				continue
			}
			at[node.Name] = append(before[:len(before):len(before)], i)
			if fits(node.Name, at[node.Name]) && from(i+1) {
				return true
			}
			at[node.Name] = before
		}
		return false
	}
	if !from(0) {
		return ""
	}
	for node, on := range at {
		if slices.Contains(on, 0) {
			return node
		}
	}
	return ""
}
