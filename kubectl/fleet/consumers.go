// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// consumers finds the pods that use claims.
type consumers struct {
	byUID map[types.UID]*corev1.Pod
	// byGroup has the pods of each PodGroup by namespace and name: pods do not know the
	// UID of their group.
	byGroup map[types.NamespacedName][]*corev1.Pod
}

func newConsumers(pods []*corev1.Pod) consumers {
	c := consumers{map[types.UID]*corev1.Pod{}, map[types.NamespacedName][]*corev1.Pod{}}
	for _, pod := range pods {
		c.byUID[pod.UID] = pod
		if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
			name := types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}
			c.byGroup[name] = append(c.byGroup[name], pod)
		}
	}
	return c
}

// podsOf returns the pods for which a claim is reserved, in order of their names. The claim
// is reserved for them or for their PodGroup. A pod of the group that does not refer to
// the claim is omitted.
func (c consumers) podsOf(claim *resourceapi.ResourceClaim) []*corev1.Pod {
	var users []*corev1.Pod
	for _, consumer := range claim.Status.ReservedFor {
		if pod := c.byUID[consumer.UID]; pod != nil {
			users = append(users, pod)
		}
	}
	for _, name := range PodGroups(claim) {
		for _, pod := range c.byGroup[types.NamespacedName{Namespace: claim.Namespace, Name: name}] {
			if resourceclaim.IsReservedForPod(pod, claim, true) && len(EntriesOf(pod, claim)) > 0 {
				users = append(users, pod)
			}
		}
	}
	slices.SortFunc(users, ByName)
	return slices.CompactFunc(users, func(a, b *corev1.Pod) bool { return a.UID == b.UID })
}

// EntriesOf returns the names that a claim has in a pod's list of claims.
func EntriesOf(pod *corev1.Pod, claim *resourceapi.ResourceClaim) []string {
	var entries []string
	for _, entry := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &entry); err == nil && name != nil && *name == claim.Name {
			entries = append(entries, entry.Name)
		}
	}
	return entries
}

// IsNamed reports whether a container of a pod names an entry of the pod's list of claims.
func IsNamed(pod *corev1.Pod, entry string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool { return r.Name == entry })
	})
}

// Consumers returns the pods for which a claim is reserved, in order of their
// names. The claim is reserved for them or for their PodGroup.
func Consumers(claim *resourceapi.ResourceClaim, pods []*corev1.Pod) []*corev1.Pod {
	return newConsumers(pods).podsOf(claim)
}

// RanAt reports whether a container of the pod ran at a time. One that was started again since
// does not count. Times have whole seconds, so one that was started in the same second counts.
func RanAt(pod *corev1.Pod, at time.Time) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		runs, ended := s.State.Running, s.State.Terminated
		return runs != nil && !runs.StartedAt.After(at) || ended != nil && !ended.StartedAt.After(at) && !ended.FinishedAt.Time.Before(at)
	})
}

// PodGroups returns the names of the PodGroups for which a claim is reserved.
func PodGroups(claim *resourceapi.ResourceClaim) []string {
	var names []string
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == schedulingapi.GroupName && consumer.Resource == "podgroups" {
			names = append(names, consumer.Name)
		}
	}
	return names
}
