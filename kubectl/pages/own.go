// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// isOwn reports whether the claim is about devices of the driver: it has one, or a class that it
// requests may select one.
func (r *reading) isOwn(claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation != nil {
		return len(fleet.Results(claim, r.Driver)) > 0
	}
	return slices.ContainsFunc(doctor.ClassesOf(claim.Spec.Devices), r.isOwnClass)
}

// isOwnClass reports whether a class may select devices of the driver. A class that the user
// cannot read, or that does not exist, may.
func (r *reading) isOwnClass(name string) bool {
	class, err := fleet.Classes(r.Objects.Classes).Get(name)
	return err != nil || len(class.Spec.Selectors) == 0 || slices.ContainsFunc(class.Spec.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && strings.Contains(s.CEL.Expression, r.Driver)
	})
}

// isWaiting reports whether a pod has not started and waits for devices of the driver.
func (r *reading) isWaiting(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodPending || !r.HasClaims(pod) {
		return false
	}
	claims, missing := r.ClaimsOf(pod)
	return len(missing) > 0 || slices.ContainsFunc(claims, r.isOwn)
}
