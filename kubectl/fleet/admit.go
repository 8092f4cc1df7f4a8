// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Cordoned is the reason why a pod cannot run on a node that an administrator has cordoned.
const Cordoned = "it is cordoned"

// Excludes returns why the scheduler does not place a pod on a node, a sentence each. It
// leaves out reasons about devices. The reasons are taints, the pod's node selector and
// affinity, and requested resources such as cpu. It returns none if the pod is nil or the
// node's object is unknown. It ignores rules about other pods, such as their anti-affinity,
// and volumes.
func (f *Fleet) Excludes(name string, pod *corev1.Pod) []string {
	node := f.nodes[name]
	if pod == nil || node == nil {
		return nil
	}
	return append(f.ExcludesForGood(name, pod), f.short(node, pod, nil)...)
}

// ExcludesForGood returns the reasons of [Fleet.Excludes] that do not end with other pods.
func (f *Fleet) ExcludesForGood(name string, pod *corev1.Pod) []string {
	node := f.nodes[name]
	var all []string
	if f.isCordoned(node, pod) {
		all = append(all, Cordoned)
	}
	for _, taint := range f.notTolerated(name, pod) {
		all = append(all, "the pod does not tolerate its taint "+taint.ToString())
	}
	// An invalid affinity selects no node.
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
		all = append(all, "it does not match the node selector or node affinity of the pod")
	}
	return all
}

// isCordoned reports whether a node is cordoned for a pod. The node controller adds the taint some
// time later.
func (f *Fleet) isCordoned(node *corev1.Node, pod *corev1.Pod) bool {
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return !tolerates(pod, cordoned) && (node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&cordoned) }))
}

// notTolerated returns the taints of a node that keep a pod away, without the one of a cordon.
func (f *Fleet) notTolerated(node string, pod *corev1.Pod) []corev1.Taint {
	if pod == nil || f.nodes[node] == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.nodes[node].Spec.Taints), func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectPreferNoSchedule || t.Key == corev1.TaintNodeUnschedulable || tolerates(pod, t)
	})
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, true)
}

// short returns a sentence for each resource of which too little is free for the pod, once some
// others are gone.
func (f *Fleet) short(node *corev1.Node, pod *corev1.Pod, gone []*corev1.Pod) []string {
	if pod.Spec.NodeName != "" {
		return nil
	}
	return f.lacks(node, requested(pod), gone)
}

// lacks is like [Fleet.short] for the resources of several pods.
func (f *Fleet) lacks(node *corev1.Node, wanted corev1.ResourceList, gone []*corev1.Pod) []string {
	var all []string
	freed := corev1.ResourceList{}
	for _, other := range gone {
		if other.Spec.NodeName == node.Name {
			addRequested(freed, other)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, free := wanted[name], node.Status.Allocatable[name].DeepCopy()
		// The kubelet keeps the resources of a device plugin that has gone, with none of them. The
		// scheduler serves these from a class, too.
		if free.IsZero() && (len(node.Status.Allocatable) == 0 || f.ClassOf(name) != nil) {
			continue
		}
		free.Sub(f.requested[node.Name][name])
		free.Add(freed[name])
		if !want.IsZero() && want.Cmp(free) > 0 {
			all = append(all, fmt.Sprintf("it has %s of %s free, less than %s", &free, name, &want))
		}
	}
	return all
}

// requested returns the resources that the scheduler counts for a pod, itself among them.
func requested(pod *corev1.Pod) corev1.ResourceList {
	all := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	all[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return all
}

// addPod counts the resources of a pod on its node.
func (f *Fleet) addPod(node string, pod *corev1.Pod) {
	if node == "" {
		return
	}
	if f.requested[node] == nil {
		f.requested[node] = corev1.ResourceList{}
	}
	addRequested(f.requested[node], pod)
}

// addRequested adds the resources of a pod, unless it has ended.
func addRequested(sum corev1.ResourceList, pod *corev1.Pod) {
	if HasEnded(pod) {
		return
	}
	for name, amount := range requested(pod) {
		all := sum[name]
		all.Add(amount)
		sum[name] = all
	}
}

// ClassOf returns the DeviceClass whose devices serve an extended resource; nil if there is
// none.
func (f *Fleet) ClassOf(extended corev1.ResourceName) *resourceapi.DeviceClass {
	return First(f.classes, func(class *resourceapi.DeviceClass) bool {
		own := class.Spec.ExtendedResourceName
		return own != nil && *own == string(extended) || resourceapi.ResourceDeviceClassPrefix+class.Name == string(extended)
	})
}

// allocatedElsewhere returns a sentence for each allocated claim that pods cannot use on the
// node.
func (f *Fleet) allocatedElsewhere(name string, claims []*resourceapi.ResourceClaim) []string {
	var all []string
	for _, claim := range claims {
		if claim.Status.Allocation == nil || claim.Status.Allocation.NodeSelector == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(claim.Status.Allocation.NodeSelector)
		if err != nil || !selector.Match(f.nodeOf(name)) {
			all = append(all, fmt.Sprintf("claim %s of the pod has its devices on another node", claim.Name))
		}
	}
	return all
}
