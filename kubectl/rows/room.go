// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Sentences about a search that has reached its limit.
const (
	foundNothing  = "nothing was found within the limit of the search, and not everything was tried (--limit)"
	foundSmallest = "it is the smallest set found; the search ended before it excluded smaller ones (--limit)"
)

// RoomOutcome is what a search for room has found. Programs compare it, so it does not change.
type RoomOutcome string

const (
	// RoomScheduled means that the pod has a node.
	RoomScheduled RoomOutcome = "scheduled"
	// RoomFree means that the pod can run now, or when pods have ended that end already.
	RoomFree RoomOutcome = "free"
	// RoomFound means that the pod can run when some pods have ended.
	RoomFound RoomOutcome = "found"
	// RoomNone means that no pods were found whose end suffices.
	RoomNone RoomOutcome = "none"
)

// Room is the fewest pods whose end lets a pod run, in JSON and YAML.
type Room struct {
	Header
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	Outcome   RoomOutcome `json:"outcome"`
	Node      string      `json:"node,omitempty"`
	// Pods are the pods to end, and Ending those that end already and whose devices or resources are needed.
	Pods   []RoomPod `json:"pods,omitempty"`
	Ending []RoomPod `json:"ending,omitempty"`
	// NotExamined is true if smaller sets were not tried within the limit of the search.
	NotExamined bool `json:"notExamined,omitempty"`
	// Reason is why nothing suffices.
	Reason string `json:"reason,omitempty"`

	// Found is the result of the search itself.
	Found fleet.Room `json:"-"`
	now   time.Time
}

// RoomPod is a pod to end, in JSON and YAML.
type RoomPod struct {
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	UID       string      `json:"uid"`
	Priority  int32       `json:"priority"`
	Started   metav1.Time `json:"started"`
	Devices   []string    `json:"devices,omitempty"`
	// Controller creates the pod again, as kind and name. A pod without one is lost.
	Controller string `json:"controller,omitempty"`
	// Group is the group of pods that end together.
	Group string `json:"group,omitempty"`
}

// Room returns the fewest pods whose end lets a pod with its claims run, or why none suffice. The error is
// the one of the context.
func (c *Cluster) Room(ctx context.Context, search *fleet.Search, pod *corev1.Pod, rules fleet.RoomRules, claims ...*resourceapi.ResourceClaim) (Room, error) {
	r := Room{Header: HeaderOf("Room"), Namespace: pod.Namespace, Pod: pod.Name, now: time.Now()}
	if pod.Spec.NodeName != "" {
		r.Outcome, r.Node = RoomScheduled, pod.Spec.NodeName
		return r, nil
	}
	r.Outcome, r.Reason = RoomNone, c.noRoom(pod, rules, claims)
	if r.Reason != "" {
		return r, nil
	}
	var err error
	if r.Found, err = search.Room(ctx, pod, rules, claims...); err != nil {
		return r, err
	}
	r.Node, r.NotExamined = r.Found.Node, !r.Found.Complete
	switch {
	case !r.Found.Found():
		r.Reason, err = c.roomReason(ctx, search, pod, rules, claims, r.Found)
	case len(r.Found.Pods) > 0:
		r.Outcome = RoomFound
	default:
		r.Outcome = RoomFree
	}
	devices := c.devicesOn(r.Node)
	row := func(pod *corev1.Pod) RoomPod { return roomPod(pod, devices) }
	r.Pods, r.Ending = fleet.Each(r.Found.Pods, row), fleet.Each(r.Found.Ending, row)
	return r, err
}

// noRoom returns why pods are not ended for a pod, whatever they have; "" if they can be.
func (c *Cluster) noRoom(pod *corev1.Pod, rules fleet.RoomRules, claims []*resourceapi.ResourceClaim) string {
	switch policy, group := pod.Spec.PreemptionPolicy, fleet.GroupOf(pod); {
	case fleet.Ends(pod):
		return "it has ended, or is being deleted"
	case len(claims) == 0:
		return "it has no claims, and room is made on GPUs only"
	case len(pod.Spec.SchedulingGates) > 0:
		return "it waits for its scheduling gate " + pod.Spec.SchedulingGates[0].Name + ", not for devices"
	case group != "":
		return "it starts together with the pods of the group " + group + ", and room is made for one pod only"
	case policy != nil && *policy == corev1.PreemptNever && !rules.AnyPriority:
		return "its preemptionPolicy is Never: no pods end for it (--any-priority overrides it)"
	}
	return strings.Join(c.MissingClasses(claims), "; ")
}

// roomReason returns why nothing suffices.
func (c *Cluster) roomReason(ctx context.Context, search *fleet.Search, pod *corev1.Pod, rules fleet.RoomRules, claims []*resourceapi.ResourceClaim, found fleet.Room) (string, error) {
	if !found.Complete {
		return foundNothing, nil
	}
	if len(found.Lacking) > 0 {
		v := found.Lacking[0]
		return fmt.Sprintf("the devices are free on node %s, and it lacks something else, for which the scheduler itself ends pods of a lower priority: %s", v.Node, strings.Join(v.Excluded, "; ")), nil
	}
	if !rules.AnyPriority {
		relaxed := rules
		relaxed.AnyPriority = true
		other, err := search.Room(ctx, pod, relaxed, claims...)
		if err != nil || other.Found() {
			return fmt.Sprintf("the pods of a lower priority than %d do not suffice; with --any-priority, %s", schedulinghelper.PodPriority(pod), fleet.NumberVerb(len(other.Pods), "pod", "does", "do")), err
		}
	}
	relaxed := rules
	relaxed.Budgets = nil
	other, err := search.Room(ctx, pod, relaxed, claims...)
	if err != nil || other.Found() {
		return "PodDisruptionBudgets do not admit the evictions now: " + List(fleet.ExceededBudgets(rules.Budgets, other.Pods)), err
	}
	if !other.Complete {
		return foundNothing, nil
	}
	verdicts, err := search.Verdicts(ctx, pod, claims...)
	if err != nil || len(verdicts) == 0 {
		return "there are no nodes", err
	}
	code, missing := c.Missing(verdicts[0])
	if code == CodeInUse {
		return "other claims hold the devices, and the end of the pods that may end does not release enough of them", nil
	}
	return fmt.Sprintf("the end of pods does not help: nearest to fit is node %s: %s", verdicts[0].Node, missing), nil
}

// devicesOn returns the devices of a node.
func (c *Cluster) devicesOn(node string) []fleet.Device {
	for _, n := range c.Nodes() {
		if n.Name == node {
			return n.Devices
		}
	}
	return nil
}

func roomPod(pod *corev1.Pod, devices []fleet.Device) RoomPod {
	p := RoomPod{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Priority: schedulinghelper.PodPriority(pod),
		Started: metav1.NewTime(fleet.Started(pod)), Group: fleet.GroupOf(pod),
	}
	for _, d := range devices {
		for _, h := range d.Holders {
			if slices.ContainsFunc(h.Pods, func(other *corev1.Pod) bool { return other.UID == pod.UID }) {
				fleet.AddOnce(&p.Devices, d.ID.Device)
			}
		}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		p.Controller = owner.Kind + " " + owner.Name
	}
	return p
}

// Sections returns the answer as commands print it.
func (r Room) Sections() []Section {
	subject := fmt.Sprintf("pod %s/%s", r.Namespace, r.Pod)
	first := Section{}
	switch r.Outcome {
	case RoomScheduled:
		first.Heading = fmt.Sprintf("%s has its node: %s", subject, r.Node)
	case RoomNone:
		first.Heading = subject + ": there is no room to be made: " + r.Reason
	case RoomFree:
		first.Heading = fmt.Sprintf("%s fits on node %s: no pod has to end", subject, r.Node)
		if len(r.Ending) > 0 {
			first.Heading = fmt.Sprintf("%s fits on node %s after the end of %s already, and no other has to end", subject, r.Node, fleet.NumberVerb(len(r.Ending), "pod", "that ends", "that end"))
		}
	case RoomFound:
		first.Heading = fmt.Sprintf("%s would run on node %s after the end of %s", subject, r.Node, fleet.Number(len(r.Pods), "pod"))
	}
	for _, p := range r.Pods {
		first.Lines = append(first.Lines, p.text(r.now))
	}
	for _, p := range r.Ending {
		first.Lines = append(first.Lines, fmt.Sprintf("%s/%s ends already", p.Namespace, p.Pod))
	}
	if r.NotExamined && r.Outcome != RoomNone {
		first.Lines = append(first.Lines, foundSmallest)
	}
	return []Section{first}
}

// text returns the pod on one line.
func (p RoomPod) text(now time.Time) string {
	text := fmt.Sprintf("%s/%s: priority %d, started %s ago", p.Namespace, p.Pod, p.Priority, fleet.Age(p.Started.Time, now))
	if p.Devices != nil {
		text += ", has " + List(p.Devices)
	}
	if p.Group != "" {
		text += ", ends with all pods of its group " + p.Group
	}
	return text + p.again()
}

// again returns what creates the pod again.
func (p RoomPod) again() string {
	if p.Controller == "" {
		return "; no controller creates it again"
	}
	return "; " + p.Controller + " creates it again"
}
