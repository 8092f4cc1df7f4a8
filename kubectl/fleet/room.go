// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
)

// systemPriority is the lowest priority of the cluster's own pods, which never end for another pod.
const systemPriority = 2_000_000_000

// RoomRules say which pods may end so that another pod runs.
type RoomRules struct {
	// AnyPriority admits pods of all priorities. Otherwise only pods with a lower priority than
	// the waiting pod may end.
	AnyPriority bool
	// Budgets are the PodDisruptionBudgets of the cluster. An eviction of each pod is admitted by
	// all of them.
	Budgets []*policyv1.PodDisruptionBudget
	// stays has the pods that do not end for another reason.
	stays map[types.UID]bool
}

// Room is the pods whose end lets a pod run on a node.
type Room struct {
	// Node is empty if nothing suffices, or if the search has found nothing.
	Node string
	// Pods are the fewest pods to end, in order of their names. It is empty if the pod fits
	// already, or once the pods of Ending have ended.
	Pods []*corev1.Pod
	// Ending are the pods that end already, and whose devices or resources are needed.
	Ending []*corev1.Pod
	// Allocations has one for each claim without an allocation, with all these pods gone.
	Allocations []resourceapi.AllocationResult
	// Released are the claims on the node's devices that are released then.
	Released []*resourceapi.ResourceClaim
	// Complete is false if the search has ended before all smaller sets were tried.
	Complete bool
	// Lacking are nodes with free devices that lack something else, such as cpu: they are not
	// searched, because the scheduler itself ends pods for that.
	Lacking []Verdict
}

// Found reports whether the pod can run on a node.
func (r Room) Found() bool { return r.Node != "" }

// groupLabels are the labels of programs that start pods together.
var groupLabels = []string{"kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group"}

// GroupOf returns the name of the group of pods that start together; "" for a pod alone.
func GroupOf(pod *corev1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return *group.PodGroupName
	}
	for _, label := range groupLabels {
		if name := pod.Labels[label]; name != "" {
			return name
		}
	}
	return ""
}

// HasEnded reports whether all containers of a pod have ended for good.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Ends reports whether a pod has ended, or is being deleted.
func Ends(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || HasEnded(pod) }

// Started returns the time since which a pod has its node.
func Started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// unit is a pod, or the pods of a group, which end together.
type unit struct {
	pods []*corev1.Pod
	// ends is true for pods that end already, at no cost.
	ends bool
	// priority is the highest one, and started the oldest one of the pods.
	priority int32
	started  time.Time
	// budgets has the number of pods that count in each PodDisruptionBudget.
	budgets map[*policyv1.PodDisruptionBudget]int32
}

// compare orders units by what their end costs.
func (u *unit) compare(other *unit) int {
	return cmp.Or(cmp.Compare(u.priority, other.priority), other.started.Compare(u.started),
		ByName(u.pods[0], other.pods[0]))
}

// units returns the unit of each pod that may end, by its UID.
func (f *Fleet) units(waiting *corev1.Pod, rules RoomRules) map[types.UID]*unit {
	budgets := newBudgets(rules.Budgets)
	groups, all := map[types.NamespacedName]*unit{}, map[types.UID]*unit{}
	refused := map[*unit]bool{}
	for _, pod := range f.objects.Pods {
		if pod.UID == waiting.UID || pod.Spec.NodeName == "" {
			continue
		}
		if Ends(pod) {
			all[pod.UID] = &unit{pods: []*corev1.Pod{pod}, ends: true}
			continue
		}
		u := &unit{budgets: map[*policyv1.PodDisruptionBudget]int32{}}
		if group := GroupOf(pod); group != "" {
			name := types.NamespacedName{Namespace: pod.Namespace, Name: group}
			if groups[name] == nil {
				groups[name] = u
			}
			u = groups[name]
		}
		all[pod.UID] = u
		own, ok := budgets.of(pod)
		priority := schedulinghelper.PodPriority(pod)
		refused[u] = refused[u] || !ok || !mayEnd(pod) || rules.stays[pod.UID] || priority >= systemPriority ||
			!rules.AnyPriority && priority >= schedulinghelper.PodPriority(waiting)
		if own != nil {
			u.budgets[own]++
		}
		if started := Started(pod); u.pods == nil || started.Before(u.started) {
			u.started = started
		}
		if u.pods == nil || priority > u.priority {
			u.priority = priority
		}
		u.pods = append(u.pods, pod)
	}
	for uid, u := range all {
		if refused[u] {
			delete(all, uid)
		}
	}
	return all
}

// mayEnd reports whether the end of a pod leaves its devices to others: pods of a DaemonSet, and
// those that the node runs from a file, come back to their node.
func mayEnd(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && (owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node")
}

// budgets are PodDisruptionBudgets by namespace.
type budgets map[string][]budget

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

func newBudgets(all []*policyv1.PodDisruptionBudget) budgets {
	b := budgets{}
	for _, pdb := range all {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil {
			selector = labels.Everything() // one that cannot be read admits nothing rather than all
		}
		b[pdb.Namespace] = append(b[pdb.Namespace], budget{pdb, selector})
	}
	return b
}

// of returns the budget that an eviction of the pod counts in; nil if none. ok is false if the
// eviction API evicts no such pod, because several budgets select it.
func (b budgets) of(pod *corev1.Pod) (_ *policyv1.PodDisruptionBudget, ok bool) {
	if pod.Status.Phase == corev1.PodPending {
		return nil, true
	}
	var own *policyv1.PodDisruptionBudget
	for _, pdb := range b[pod.Namespace] {
		if !pdb.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if own != nil {
			return nil, false
		}
		own = pdb.PodDisruptionBudget
	}
	if own != nil && !IsReady(pod) {
		if policy := own.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
			return nil, true
		}
		if own.Status.DesiredHealthy > 0 && own.Status.CurrentHealthy >= own.Status.DesiredHealthy {
			return nil, true
		}
	}
	return own, true
}

// IsReady reports whether the kubelet says that a pod is ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ExceededBudgets returns the budgets that do not admit the eviction of all pods, each with the number
// that it admits now.
func ExceededBudgets(all []*policyv1.PodDisruptionBudget, pods []*corev1.Pod) []string {
	own, ends := newBudgets(all), map[*policyv1.PodDisruptionBudget]int32{}
	var names []string
	for _, pod := range pods {
		pdb, ok := own.of(pod)
		switch {
		case !ok:
			names = append(names, fmt.Sprintf("several select pod %s/%s", pod.Namespace, pod.Name))
		case pdb != nil:
			if ends[pdb]++; ends[pdb] == Disruptions(pdb)+1 {
				names = append(names, fmt.Sprintf("%s/%s admits %d", pdb.Namespace, pdb.Name, Disruptions(pdb)))
			}
		}
	}
	slices.Sort(names)
	return names
}

// Disruptions returns the number of evictions that a budget admits now.
func Disruptions(pdb *policyv1.PodDisruptionBudget) int32 {
	if pdb.Status.ObservedGeneration < pdb.Generation {
		return 0
	}
	return pdb.Status.DisruptionsAllowed
}

// releases finds the pods with whose end claims are released.
type releases struct {
	// named are the pods by the claims that they name.
	named map[types.NamespacedName][]*corev1.Pod
}

func newReleases(pods []*corev1.Pod) releases {
	r := releases{map[types.NamespacedName][]*corev1.Pod{}}
	for _, pod := range pods {
		for _, entry := range pod.Spec.ResourceClaims {
			if entry.ResourceClaimName != nil {
				name := types.NamespacedName{Namespace: pod.Namespace, Name: *entry.ResourceClaimName}
				r.named[name] = append(r.named[name], pod)
			}
		}
	}
	return r
}

// of returns the pods with the last of which a claim is released. It returns none if their end does not
// release it: if the claim is reserved for a PodGroup, or for a pod that is not known, or if
// another pod takes the claim as it is.
func (r releases) of(h Holder) []*corev1.Pod {
	if len(h.Pods) == 0 || len(h.Pods) != len(h.Claim.Status.ReservedFor) || len(PodGroups(h.Claim)) > 0 {
		return nil
	}
	if owner := metav1.GetControllerOf(h.Claim); owner != nil && owner.Kind == "Pod" {
		return h.Pods
	}
	users := slices.Clone(h.Pods)
	for _, pod := range r.named[types.NamespacedName{Namespace: h.Claim.Namespace, Name: h.Claim.Name}] {
		if !slices.Contains(users, pod) && (!HasEnded(pod) || pod.DeletionTimestamp != nil) {
			users = append(users, pod)
		}
	}
	// The next pod of a controller names the same claim.
	if slices.ContainsFunc(users, func(pod *corev1.Pod) bool { return metav1.GetControllerOf(pod) != nil }) {
		return nil
	}
	return users
}
