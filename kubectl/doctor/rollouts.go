// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// checkRollouts reports DaemonSets of the driver whose pods are not created or not updated. The
// status of a DaemonSet has no times: an update makes progress while pods are created or become
// ready.
func checkRollouts(c *Cluster) []Finding {
	var findings []Finding
	for _, set := range c.DaemonSets {
		findings = append(findings, c.rollout(set)...)
	}
	for _, pod := range c.Pending {
		if c.Now.Sub(pod.CreationTimestamp.Time) <= patience {
			continue
		}
		findings = append(findings, newFinding("pod-not-scheduled", onNode(cmp.Or(placeOf(pod), "?")),
			fmt.Sprintf("pod %s is not scheduled%s: %s", pod.Name, c.since(pod.CreationTimestamp.Time), WhyNotReady(pod)), "the node publishes no GPUs, or prepares no shares",
			fmt.Sprintf("run kubectl --namespace %s describe pod %s: make room on the node for its requests, or add the toleration that it lacks", pod.Namespace, pod.Name)))
	}
	return orOK(findings, "all pods of "+fleet.Number(len(c.DaemonSets), "DaemonSet")+" are created and of the newest release")
}

// rollout returns the finding about a DaemonSet; nil if it is up to date or makes progress.
func (c *Cluster) rollout(set *appsv1.DaemonSet) []Finding {
	status := set.Status
	last := c.progress(set)
	idle := c.Now.Sub(last)
	stuck := c.cannotStart(set)
	if idle <= patience && stuck == nil {
		return nil
	}
	kubectl := "kubectl --namespace " + set.Namespace
	found := func(code, found, meaning, remedy string) []Finding {
		return []Finding{newFinding(code, "daemonset "+fleet.FullName(set), found, meaning, remedy)}
	}
	updated := fmt.Sprintf("%d of %s are of the newest release", status.UpdatedNumberScheduled, fleet.Number(int(status.DesiredNumberScheduled), "pod"))
	switch missing := status.DesiredNumberScheduled - status.CurrentNumberScheduled; {
	case missing > 0 && idle > patience:
		return found("pods-not-created", fmt.Sprintf("pods of it are missing on %d of %s", missing, fleet.Number(int(status.DesiredNumberScheduled), "selected node")),
			"these nodes publish no GPUs, or prepare no shares",
			fmt.Sprintf("run %s describe daemonset %s: its events have the reason, such as a quota or Pod Security", kubectl, set.Name))
	case status.ObservedGeneration < set.Generation && idle > patience:
		return found("rollout-stuck", fmt.Sprintf("the kube-controller-manager has seen generation %d of %d", status.ObservedGeneration, set.Generation),
			"the newest settings have no effect", "check that the kube-controller-manager runs")
	case status.UpdatedNumberScheduled >= status.DesiredNumberScheduled && stuck == nil:
		return nil
	case stuck != nil:
		meaning := "the node of that pod is not served, and other nodes stay at the older release or settings"
		if slices.ContainsFunc(c.podsOf(set), func(p *corev1.Pod) bool { return p.Spec.NodeName == stuck.Spec.NodeName && fleet.IsReady(p) }) {
			meaning = "the older pod serves node " + stuck.Spec.NodeName + " on, and other nodes stay at the older release or settings"
		}
		return found("rollout-stuck", fmt.Sprintf("%s, and pod %s cannot start: %s", updated, stuck.Name, WhyNotReady(stuck)), meaning,
			fmt.Sprintf("correct the image or the setting that the finding names, or go back: %s rollout undo daemonset/%s", kubectl, set.Name))
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return found("rollout-on-delete", updated+", and the update strategy is OnDelete", "the others run an older release or older settings until they are deleted",
			"let the claims of a node end, such as by kubectl drain, before its older pod is deleted")
	default:
		progress, remedy := fmt.Sprintf("%s, and none has been created or become ready for %s", updated, fleet.Age(last, c.Now)), fmt.Sprintf("run %s rollout status daemonset/%s", kubectl, set.Name)
		if blocking := c.notReadyOf(set); len(blocking) > 0 {
			progress += "; not ready: " + list(blocking)
			remedy = fmt.Sprintf("make the pod ready that stops the update: %s describe pod %s", kubectl, blocking[0])
		}
		return found("rollout-stuck", progress, "the other nodes run an older release or older settings", remedy)
	}
}

// placeOf returns the node of a pod that is not scheduled; "" if the pod names none.
func placeOf(pod *corev1.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// podsOf returns the pods of a DaemonSet.
func (c *Cluster) podsOf(set *appsv1.DaemonSet) []*corev1.Pod {
	return slices.DeleteFunc(slices.Concat(c.Agents, c.Supervisors, c.Pending), func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, set) })
}

// progress returns when a DaemonSet has last made progress, as far as its pods show.
func (c *Cluster) progress(set *appsv1.DaemonSet) time.Time {
	times := []time.Time{set.CreationTimestamp.Time}
	for _, pod := range c.podsOf(set) {
		times = append(times, pod.CreationTimestamp.Time)
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				times = append(times, condition.LastTransitionTime.Time)
			}
		}
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// cannotStart returns a pod of a DaemonSet with a container that cannot be created. It returns nil
// if there is none.
func (c *Cluster) cannotStart(set *appsv1.DaemonSet) *corev1.Pod {
	return fleet.First(c.podsOf(set), func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
			return s.State.Waiting != nil && slices.Contains(notCreated, s.State.Waiting.Reason)
		})
	})
}

// notCreated are the kubelet's reasons for a container that it could not create. Most of them last
// until the pod or its image is changed.
var notCreated = []string{"ErrImageNeverPull", "InvalidImageName", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// notReadyOf returns the names of the pods of a DaemonSet that are not ready, sorted.
func (c *Cluster) notReadyOf(set *appsv1.DaemonSet) []string {
	blocking := slices.DeleteFunc(c.podsOf(set), fleet.IsReady)
	return slices.Sorted(slices.Values(fleet.Each(blocking, (*corev1.Pod).GetName)))
}
