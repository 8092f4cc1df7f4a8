// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// checkContainers reports claims that do something else than their user means: shares that are
// rounded up, claims that no container names, and containers with several shares.
func checkContainers(c *Cluster) []Finding {
	classes := map[string]bool{}
	for _, class := range c.ownClasses() {
		classes[class.Name] = true
	}
	claims := map[types.NamespacedName]*resourceapi.ResourceClaim{}
	var findings []Finding
	for _, claim := range c.Claims {
		claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
	}
	for _, claim := range c.ownClaims() {
		findings = append(findings, c.rounded(claim)...)
	}
	pods := 0
	for _, pod := range c.Pods {
		if fleet.Ends(pod) {
			continue
		}
		own := map[string]*resourceapi.ResourceClaim{}
		for _, entry := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &entry)
			if err != nil || name == nil {
				continue // the claim is not created yet
			}
			if claim := claims[types.NamespacedName{Namespace: pod.Namespace, Name: *name}]; claim != nil && c.isOurs(claim, classes) {
				own[entry.Name] = claim
			}
		}
		if len(own) > 0 {
			pods++
			findings = append(findings, notNamed(pod, own)...)
			findings = append(findings, c.twoShares(pod, own)...)
		}
	}
	return orOK(findings, "the containers of "+fleet.Number(pods, "pod")+" get the devices and amounts that the claims request")
}

// isOurs reports whether a claim has devices of the driver, or requests one of its classes.
func (c *Cluster) isOurs(claim *resourceapi.ResourceClaim, classes map[string]bool) bool {
	if claim.Status.Allocation != nil {
		return len(fleet.Results(claim, c.Driver)) > 0
	}
	return slices.ContainsFunc(ClassesOf(claim.Spec.Devices), func(name string) bool { return classes[name] })
}

// notNamed returns a finding for each claim of the pod that no container names.
func notNamed(pod *corev1.Pod, own map[string]*resourceapi.ResourceClaim) []Finding {
	var findings []Finding
	for _, entry := range slices.Sorted(maps.Keys(own)) {
		if !fleet.IsNamed(pod, entry) {
			findings = append(findings, newFinding("claim-not-named", "pod "+fleet.FullName(pod), fmt.Sprintf("no container names its claim %s", entry),
				"no container gets the devices, which other pods cannot use meanwhile",
				fmt.Sprintf("add resources: {claims: [{name: %s}]} to the container that uses the GPU, and create the pod again", entry)))
		}
	}
	return findings
}

// twoShares returns a finding for each container that has several shares limited by MPS.
func (c *Cluster) twoShares(pod *corev1.Pod, own map[string]*resourceapi.ResourceClaim) []Finding {
	var findings []Finding
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		shares := map[string]bool{}
		for _, use := range container.Resources.Claims {
			claim := own[use.Name]
			if claim == nil {
				continue
			}
			for _, result := range fleet.Results(claim, c.Driver) {
				request, _, _ := strings.Cut(result.Request, "/")
				share, _ := fleet.Holder{Claim: claim, Result: result}.Share()
				if (use.Request == "" || use.Request == request) && share != nil && share.Strategy == v1alpha1.StrategyMPS {
					shares[use.Name+" ("+result.Device+")"] = true
				}
			}
		}
		if len(shares) > 1 {
			findings = append(findings, newFinding("two-shares-in-container", "pod "+fleet.FullName(pod),
				fmt.Sprintf("its container %s names %d shares: %s", container.Name, len(shares), list(slices.Sorted(maps.Keys(shares)))),
				"the container uses one MPS daemon, and gets the limits of one share", "name one share in each container, or request whole GPUs or MIG devices"))
		}
	}
	return findings
}

// wholeMebibyte is the step of memory. A request is rounded up to it without a loss.
const wholeMebibyte = 1 << 20

// rounded returns a finding for each amount of which a claim holds more than it requests.
func (c *Cluster) rounded(claim *resourceapi.ResourceClaim) []Finding {
	var findings []Finding
	for _, result := range fleet.Results(claim, c.Driver) {
		requested := requestedAmounts(claim, result.Request)
		for _, capacity := range slices.Sorted(maps.Keys(requested)) {
			want, have := requested[capacity], result.ConsumedCapacity[capacity]
			if have.Cmp(want) <= 0 || capacity == v1alpha1.CapacityMemory && have.Value()-want.Value() < wholeMebibyte {
				continue
			}
			findings = append(findings, newFinding("share-rounded-up", nameOf(claim),
				fmt.Sprintf("request %s has %s of %s, and holds %s", result.Request, want.String(), capacity, have.String()),
				"the scheduler rounds up to the least share and the step of the device; quotas and other claims count what it holds",
				fmt.Sprintf("request %s of %s, or a larger part of the GPU", have.String(), capacity)))
		}
	}
	return findings
}

// requestedAmounts returns the amounts of a request, which for an alternative is "request/alternative".
func requestedAmounts(claim *resourceapi.ResourceClaim, request string) map[resourceapi.QualifiedName]resource.Quantity {
	for _, r := range fleet.Requests(claim.Spec.Devices) {
		if r.Name == request && r.Exactly.Capacity != nil {
			return r.Exactly.Capacity.Requests
		}
	}
	return nil
}
