// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Claim is a claim and its devices of the driver.
type Claim struct {
	Namespace, Name, State string
	// Waits is true without an allocation.
	Waits   bool
	Devices []ClaimDevice
	// Pods are the ones that the claim is reserved for, themselves or by their PodGroup.
	Pods, PodGroups []string
}

// ClaimDevice is a device of a claim.
type ClaimDevice struct{ Node, Device string }

// Claims returns the claims of the cluster, in order of their names.
func (c *Cluster) Claims() []Claim {
	var rows []Claim
	for _, claim := range c.Objects.Claims {
		rows = append(rows, c.Claim(claim))
	}
	slices.SortFunc(rows, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// Claim returns the row of a claim.
func (c *Cluster) Claim(claim *resourceapi.ResourceClaim) Claim {
	row := Claim{
		Namespace: claim.Namespace, Name: claim.Name, State: claimState(claim), Waits: claim.Status.Allocation == nil,
		PodGroups: fleet.PodGroups(claim),
	}
	if !row.Waits {
		for _, d := range claim.Status.Allocation.Devices.Results {
			if d.Driver == c.Driver {
				row.Devices = append(row.Devices, ClaimDevice{d.Pool, d.Device})
			}
		}
	}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			row.Pods = append(row.Pods, consumer.Name)
		}
	}
	if len(row.PodGroups) > 0 {
		for _, pod := range fleet.Consumers(claim, c.Objects.Pods) {
			row.Pods = append(row.Pods, pod.Name)
		}
	}
	return row
}

// claimState returns the state of a claim in a word or two.
func claimState(claim *resourceapi.ResourceClaim) string {
	switch {
	case claim.DeletionTimestamp != nil:
		return "ends"
	case claim.Status.Allocation == nil:
		return "waits"
	case len(claim.Status.ReservedFor) == 0:
		return "has devices, no pod"
	default:
		return "in use"
	}
}

// Request is a request of a claim, or one of its alternatives.
type Request struct{ Name, Class, Devices, Amounts, Selectors string }

// Requests returns the requests of a claim, in their order.
func Requests(claim *resourceapi.ResourceClaim) []Request {
	var rows []Request
	for _, request := range claim.Spec.Devices.Requests {
		if r := request.Exactly; r != nil {
			rows = append(rows, newRequest(request.Name, r))
		}
		for _, r := range request.FirstAvailable {
			rows = append(rows, newRequest(request.Name+"/"+r.Name, &resourceapi.ExactDeviceRequest{
				DeviceClassName: r.DeviceClassName, AllocationMode: r.AllocationMode, Count: r.Count, Capacity: r.Capacity, Selectors: r.Selectors,
			}))
		}
	}
	return rows
}

func newRequest(name string, r *resourceapi.ExactDeviceRequest) Request {
	number := fmt.Sprint(r.Count)
	if r.AllocationMode == resourceapi.DeviceAllocationModeAll {
		number = "all"
	}
	var amounts, expressions []string
	if r.Capacity != nil {
		for name, amount := range r.Capacity.Requests {
			amounts = append(amounts, fmt.Sprintf("%s %s", name, amount.String()))
		}
		slices.Sort(amounts)
	}
	for _, s := range r.Selectors {
		if s.CEL != nil {
			expressions = append(expressions, s.CEL.Expression)
		}
	}
	return Request{name, r.DeviceClassName, number, OrDash(strings.Join(amounts, ", ")), OrDash(strings.Join(expressions, " && "))}
}

// Reports returns the conditions of a claim's devices, which drivers report.
func Reports(claim *resourceapi.ResourceClaim) []string {
	var all []string
	for _, status := range claim.Status.Devices {
		for _, condition := range status.Conditions {
			all = append(all, fmt.Sprintf("%s: %s is %s: %s", status.Device, condition.Type, condition.Status, condition.Message))
		}
	}
	return all
}

// Unscheduled reports whether the scheduler has found no node for a pod, and its reason.
func Unscheduled(pod *corev1.Pod) (message string, waits bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message, true
		}
	}
	return "", false
}

// ClaimsOf returns the claims of a pod, and a sentence for each that does not exist.
func (c *Cluster) ClaimsOf(pod *corev1.Pod) (claims []*resourceapi.ResourceClaim, missing []string) {
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, entry)
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound):
			missing = append(missing, fmt.Sprintf("claim %s has not been created from its template %s: check that the template exists", entry.Name, *entry.ResourceClaimTemplateName))
		case err != nil:
			missing = append(missing, err.Error())
		case name != nil:
			if claim := FindClaim(c.Objects, pod.Namespace, *name); claim != nil {
				claims = append(claims, claim)
			} else {
				missing = append(missing, fmt.Sprintf("claim %s of the pod does not exist", *name))
			}
		}
	}
	if extended := c.ExtendedClaim(pod); extended != nil {
		claims = append(claims, extended)
	}
	return claims, missing
}

// HasClaims reports whether a pod has claims or extended resources that DeviceClasses serve.
func (c *Cluster) HasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || c.ExtendedClaim(pod) != nil
}

// ExtendedClaim returns the claim for the extended resources of a pod that DeviceClasses
// serve: the one that the scheduler has created, or else the one that it would create; nil
// if the pod requests none.
func (c *Cluster) ExtendedClaim(pod *corev1.Pod) *resourceapi.ResourceClaim {
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if claim := FindClaim(c.Objects, pod.Namespace, status.ResourceClaimName); claim != nil {
			return claim
		}
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "of extended resources"}}
	// Init containers use the devices of the others.
	for _, container := range pod.Spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			class := c.ClassOf(name)
			if class == nil {
				continue
			}
			amount := container.Resources.Limits[name]
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
				Name: container.Name + "/" + string(name),
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: amount.Value(),
				},
			})
		}
	}
	if claim.Spec.Devices.Requests == nil {
		return nil
	}
	return claim
}

// FindClaim returns a claim by its name; nil if it does not exist.
func FindClaim(objects fleet.Objects, namespace, name string) *resourceapi.ResourceClaim {
	i := slices.IndexFunc(objects.Claims, func(c *resourceapi.ResourceClaim) bool { return c.Namespace == namespace && c.Name == name })
	if i < 0 {
		return nil
	}
	return objects.Claims[i]
}
