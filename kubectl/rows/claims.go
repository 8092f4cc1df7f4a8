// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

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
	var sidecars, ending []corev1.Container
	for _, container := range pod.Spec.InitContainers {
		if ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			sidecars = append(sidecars, container)
		} else {
			ending = append(ending, container)
		}
	}
	lasting, total := slices.Concat(sidecars, pod.Spec.Containers), map[corev1.ResourceName]int64{}
	for i, container := range slices.Concat(lasting, ending) {
		for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
			class, amount := c.ClassOf(name), container.Resources.Limits[name]
			count := amount.Value()
			if i >= len(lasting) {
				count -= total[name] // an init container that ends uses the devices of the others
			}
			if class == nil || count <= 0 {
				continue
			}
			total[name] += count
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
				Name: container.Name + "/" + string(name),
				Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
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
	return fleet.First(objects.Claims, func(c *resourceapi.ResourceClaim) bool { return c.Namespace == namespace && c.Name == name })
}
