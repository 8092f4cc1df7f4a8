// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// patience is the time after which a claim that does not change counts as stuck. Ending a
// pod takes up to some minutes.
const patience = 10 * time.Minute

// ownClaims returns the claims with devices of the driver.
func (c *Cluster) ownClaims() []*resourceapi.ResourceClaim {
	return slices.DeleteFunc(slices.Clone(c.Claims), func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation == nil || !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == c.Driver
		})
	})
}

func nameOf(claim *resourceapi.ResourceClaim) string {
	return "claim " + claim.Namespace + "/" + claim.Name
}

func checkClaims(c *Cluster) []Finding {
	var findings []Finding
	claims := c.ownClaims()
	for _, claim := range claims {
		deleted := claim.DeletionTimestamp
		switch {
		case deleted != nil && c.Now.Sub(deleted.Time) > patience:
			findings = append(findings, Finding{
				Object: nameOf(claim), State: Problem,
				Found:   fmt.Sprintf("it is deleted since %s and has the finalizers %s", deleted.UTC().Format(time.RFC3339), strings.Join(claim.Finalizers, ", ")),
				Meaning: "its devices stay allocated",
				Remedy:  "end the pods that use it; if none is left, check that the kube-controller-manager runs, which removes the allocation. Remove no finalizer: the devices may be in use",
			})
		case deleted == nil && len(claim.Status.ReservedFor) == 0 && c.Now.Sub(claim.CreationTimestamp.Time) > patience:
			findings = append(findings, Finding{
				Object: nameOf(claim), State: Warning, Found: "it has devices, and no pod uses it", Meaning: "other claims do not get its devices",
				Remedy: "if this lasts, check that the kube-controller-manager runs, which takes devices back; or delete the claim: kubectl --namespace " + claim.Namespace + " delete resourceclaim " + claim.Name,
			})
		}
	}
	return orOK(findings, count(len(claims), "claim")+" with devices, none stuck")
}

// checkPrepared reports devices that the agent could not prepare. The condition and its
// reasons are in docs/reference.md#event-texts.
func checkPrepared(c *Cluster) []Finding {
	var findings []Finding
	prepared := 0
	for _, claim := range c.ownClaims() {
		for _, device := range claim.Status.Devices {
			ready := meta.FindStatusCondition(device.Conditions, v1alpha1.ConditionReady)
			if device.Driver != c.Driver || ready == nil {
				continue
			}
			if ready.Status == metav1.ConditionTrue {
				prepared++
				continue
			}
			findings = append(findings, Finding{
				Object: nameOf(claim), State: Problem, Found: fmt.Sprintf("%s is not prepared: %s: %s", device.Device, ready.Reason, ready.Message),
				Meaning: "its pod stays in ContainerCreating", Remedy: "docs/reference.md#event-texts has the reason, and whether waiting helps; the kubelet tries again",
			})
		}
	}
	return orOK(findings, count(prepared, "device")+" prepared, none refused")
}

// checkConsumers reports claims that are reserved for pods that do not exist, or that have
// ended.
func checkConsumers(c *Cluster) []Finding {
	pods := map[types.UID]*corev1.Pod{}
	for _, pod := range c.Pods {
		pods[pod.UID] = pod
	}
	var findings []Finding
	claims := c.ownClaims()
	for _, claim := range claims {
		if c.Now.Sub(claim.CreationTimestamp.Time) <= patience {
			continue // a pod that was created meanwhile may be in the newer list only
		}
		for _, consumer := range claim.Status.ReservedFor {
			if consumer.Resource != "pods" || consumer.APIGroup != "" {
				continue
			}
			pod := pods[consumer.UID]
			if pod == nil {
				findings = append(findings, Finding{
					Object: nameOf(claim), State: Problem, Found: "it is reserved for pod " + consumer.Name + ", which does not exist",
					Meaning: "its devices stay allocated", Remedy: "check that the kube-controller-manager runs, which removes the reservation",
				})
			} else if d := pod.DeletionTimestamp; d != nil && c.Now.Sub(d.Time) > patience {
				findings = append(findings, Finding{
					Object: nameOf(claim), State: Problem, Found: fmt.Sprintf("its pod %s is Terminating since %s", pod.Name, d.UTC().Format(time.RFC3339)),
					Meaning: "its devices stay allocated",
					Remedy:  "run kubectl gpu explain " + pod.Name + " --namespace " + pod.Namespace + "; do not force the deletion while a process uses the GPU",
				})
			}
		}
	}
	return orOK(findings, count(len(claims), "claim")+" with devices, each for pods that exist")
}
