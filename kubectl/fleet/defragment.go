// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Moves is the pods that are ended and created again elsewhere so that a waiting pod runs.
type Moves struct {
	// Node is the node of the waiting pod; empty if nothing suffices, or if the search has found nothing.
	Node string
	// Allocations has one for each of its claims without an allocation.
	Allocations []resourceapi.AllocationResult
	// Pods are the fewest pods to move, in order of their names; none if the waiting pod fits already.
	Pods []Move
	// Complete is false if the search has ended before all smaller sets were tried.
	Complete bool
	// Lacking are nodes with free devices that lack something else, as in [Room].
	Lacking []Verdict
}

// Move is a pod that is ended, and its place after it is created again.
type Move struct {
	Pod  *corev1.Pod
	Node string
	// Claims are its claims that get an allocation again, with that one.
	Claims []*resourceapi.ResourceClaim
}

// Defragmentation moves pods so that waiting pods run, one after the other. It does so in a model of the
// cluster only.
type Defragmentation struct {
	fleet *Fleet
	rules RoomRules
	// Ending are the pods that end already and hold devices: these count as free.
	Ending []*corev1.Pod
}

// NewDefragmentation returns one that begins with the current fleet. It moves only pods of the named node;
// of all nodes if the name is empty.
func (f *Fleet) NewDefragmentation(node string, budgets []*policyv1.PodDisruptionBudget) *Defragmentation {
	d := &Defragmentation{rules: RoomRules{AnyPriority: true, stays: map[types.UID]bool{}}}
	d.fleet, d.Ending = f.withoutEnding()
	for _, pod := range d.fleet.objects.Pods {
		d.rules.stays[pod.UID] = node != "" && pod.Spec.NodeName != node
	}
	for _, pdb := range budgets {
		d.rules.Budgets = append(d.rules.Budgets, pdb.DeepCopy())
	}
	return d
}

// withoutEnding returns the fleet after the end of the pods that end already, and those of them with claims.
func (f *Fleet) withoutEnding() (*Fleet, []*corev1.Pod) {
	objects, users, r := f.objects, newConsumers(f.objects.Pods), newReleases(f.objects.Pods)
	var ending []*corev1.Pod
	objects.Claims = nil
	for _, claim := range f.objects.Claims {
		pods := users.podsOf(claim)
		gone := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !Ends(pod) })
		if len(gone) == 0 {
			objects.Claims = append(objects.Claims, claim)
			continue
		}
		for _, pod := range gone {
			AddOnce(&ending, pod)
		}
		if last := r.of(Holder{Claim: claim, Pods: pods}); last != nil && !slices.ContainsFunc(last, func(pod *corev1.Pod) bool { return !Ends(pod) }) {
			continue
		}
		left := *claim
		left.Status.ReservedFor = slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(c resourceapi.ResourceClaimConsumerReference) bool {
			return slices.ContainsFunc(gone, func(pod *corev1.Pod) bool { return pod.UID == c.UID })
		})
		objects.Claims = append(objects.Claims, &left)
	}
	objects.Pods = slices.DeleteFunc(slices.Clone(objects.Pods), Ends)
	slices.SortFunc(ending, ByName)
	return f.with(objects), ending
}

// with returns a fleet of other objects.
func (f *Fleet) with(objects Objects) *Fleet {
	own := New(objects, f.Options)
	own.cel = f.cel
	return own
}

// Place finds the fewest pods to move so that a waiting pod with its claims runs, proven by the allocator:
// all of them have a place together. Of several sets of pods it prefers them as [Search.Room] does. If it finds one, the
// pods are moved, and stay. The search ends after the limit, as those of [Fleet.NewSearch]. The error is
// the one of the context.
func (d *Defragmentation) Place(ctx context.Context, limit time.Duration, pod *corev1.Pod, claims ...*resourceapi.ResourceClaim) (Moves, error) {
	found, err := d.fleet.NewSearch(limit).moves(ctx, pod, d.rules, claims)
	if err == nil && found.Node != "" {
		d.do(pod, claims, found)
	}
	return found, err
}

// do moves the pods.
func (d *Defragmentation) do(waiting *corev1.Pod, claims []*resourceapi.ResourceClaim, moves Moves) {
	places, allocated := map[types.UID]string{waiting.UID: moves.Node}, map[types.NamespacedName]*resourceapi.ResourceClaim{}
	set := func(claim *resourceapi.ResourceClaim) {
		allocated[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
	}
	budgets := newBudgets(d.rules.Budgets)
	for i, claim := range withoutAllocation(claims) {
		own := *claim
		own.Status.Allocation = &moves.Allocations[i]
		own.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: waiting.Name, UID: waiting.UID}}
		set(&own)
	}
	for _, move := range moves.Pods {
		places[move.Pod.UID] = move.Node
		if pdb, _ := budgets.of(move.Pod); pdb != nil {
			pdb.Status.DisruptionsAllowed--
		}
		for _, claim := range move.Claims {
			set(claim)
		}
	}
	objects := d.fleet.objects
	objects.Pods, objects.Claims = slices.Clone(objects.Pods), slices.Clone(objects.Claims)
	for i, pod := range objects.Pods {
		if node := places[pod.UID]; node != "" {
			own := *pod
			own.Spec.NodeName = node
			objects.Pods[i], d.rules.stays[pod.UID] = &own, true
		}
	}
	for i, claim := range objects.Claims {
		name := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
		if own := allocated[name]; own != nil {
			objects.Claims[i] = own
			delete(allocated, name)
		}
	}
	// The scheduler creates the claims of extended resources.
	for _, name := range slices.SortedFunc(maps.Keys(allocated), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		objects.Claims = append(objects.Claims, allocated[name])
	}
	d.fleet = d.fleet.with(objects)
}
