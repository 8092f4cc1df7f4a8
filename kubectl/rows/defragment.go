// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// mostWaiting bounds the waiting pods for which pods are moved.
const mostWaiting = 10

// Defragmentation is the pods to move so that waiting pods run, in JSON and YAML.
type Defragmentation struct {
	Header
	// Items are the waiting pods in the order of their priority, then their age. Each counts on the moves for those before it.
	Items []MovesFor `json:"items"`
	// Restarts is the number of pods that are ended and created again.
	Restarts int `json:"restarts"`
	// Ending are the pods that end already. Their devices count as free.
	Ending []string `json:"ending,omitempty"`
	// NotExamined is the number of waiting pods without an answer.
	NotExamined int `json:"notExamined,omitempty"`
}

// MovesFor is the fewest pods to move for a waiting pod, in JSON and YAML.
type MovesFor struct {
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	Outcome   RoomOutcome `json:"outcome"`
	Node      string      `json:"node,omitempty"`
	Devices   []string    `json:"devices,omitempty"`
	Moves     []Move      `json:"moves,omitempty"`
	// Alike is the number of pods of the same shape after this one, which have the same answer: none.
	Alike int `json:"alike,omitempty"`
	// NotExamined is true if smaller sets were not tried within the limit of the search.
	NotExamined bool `json:"notExamined,omitempty"`
	// Reason is why nothing suffices.
	Reason string `json:"reason,omitempty"`
}

// Move is a pod that is ended, and its place after it is created again, in JSON and YAML.
type Move struct {
	RoomPod
	Node      string   `json:"node"`
	ToNode    string   `json:"toNode"`
	ToDevices []string `json:"toDevices,omitempty"`
}

// Helps reports whether a waiting pod can run.
func (d Defragmentation) Helps() bool {
	return slices.ContainsFunc(d.Items, func(m MovesFor) bool { return m.Outcome != RoomNone })
}

// Defragment returns the pods to move so that the waiting pods run; those of one node only if it is named. All
// searches together end after the limit. The error is the one of the context.
func (c *Cluster) Defragment(ctx context.Context, limit time.Duration, node string, budgets []*policyv1.PodDisruptionBudget) (Defragmentation, error) {
	result := Defragmentation{Header: HeaderOf("MoveList"), Items: []MovesFor{}}
	model := c.NewDefragmentation(node, budgets)
	result.Ending = fleet.Each(model.Ending, fleet.FullName[*corev1.Pod])
	devices := map[string][]fleet.Device{}
	for _, n := range c.Nodes() {
		devices[n.Name] = n.Devices
	}
	waiting, none := c.waiting(), map[string]int{}
	for i, pod := range waiting {
		claims, missing := c.ClaimsOf(pod)
		shape, err := fleet.ShapeOf(pod, claims)
		at, isKnown := none[shape]
		switch {
		case err == nil && isKnown:
			result.Items[at].Alike++
			continue
		case missing != nil || c.noRoom(pod, fleet.RoomRules{AnyPriority: true}, claims) != "" || len(result.Items) == mostWaiting:
			result.NotExamined++
			continue
		}
		// Each search has an equal part of the time that is left.
		started := time.Now()
		part := max(limit/time.Duration(min(mostWaiting-len(result.Items), len(waiting)-i)), time.Millisecond)
		found, err := model.Place(ctx, part, pod, claims...)
		if err != nil {
			return result, err
		}
		limit -= time.Since(started)
		answer := movesFor(pod, found, devices)
		if answer.Outcome == RoomNone {
			none[shape] = len(result.Items)
		}
		result.Items = append(result.Items, answer)
		result.Restarts += len(answer.Moves)
	}
	return result, nil
}

// waiting returns the pods that wait for devices, in the order in which the scheduler serves them.
func (c *Cluster) waiting() []*corev1.Pod {
	all := slices.DeleteFunc(slices.Clone(c.Objects.Pods), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != "" || fleet.Ends(pod) || len(pod.Spec.SchedulingGates) > 0 || !c.HasClaims(pod)
	})
	slices.SortFunc(all, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(schedulinghelper.PodPriority(b), schedulinghelper.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			fleet.ByName(a, b))
	})
	return all
}

// movesFor returns the answer for a waiting pod.
func movesFor(pod *corev1.Pod, found fleet.Moves, devices map[string][]fleet.Device) MovesFor {
	m := MovesFor{Namespace: pod.Namespace, Pod: pod.Name, Outcome: RoomFound, Node: found.Node, NotExamined: !found.Complete}
	switch {
	case found.Node == "":
		m.Outcome, m.Reason = RoomNone, "no pods can move so that it fits"
		if !found.Complete {
			m.Reason = foundNothing
		} else if len(found.Lacking) > 0 {
			m.Reason = fmt.Sprintf("the devices are free on node %s, and %s", found.Lacking[0].Node, found.Lacking[0].Excluded[0])
		}
	case len(found.Pods) == 0:
		m.Outcome = RoomFree
	}
	for _, allocation := range found.Allocations {
		m.Devices = append(m.Devices, devicesIn(&allocation)...)
	}
	for _, p := range found.Pods {
		move := Move{RoomPod: roomPod(p.Pod, devices[p.Pod.Spec.NodeName]), Node: p.Pod.Spec.NodeName, ToNode: p.Node}
		for _, claim := range p.Claims {
			move.ToDevices = append(move.ToDevices, devicesIn(claim.Status.Allocation)...)
		}
		m.Moves = append(m.Moves, move)
	}
	return m
}

func devicesIn(allocation *resourceapi.AllocationResult) []string {
	var all []string
	for _, result := range allocation.Devices.Results {
		fleet.AddOnce(&all, result.Device)
	}
	return all
}

// Sections returns the answer as commands print it.
func (d Defragmentation) Sections() []Section {
	var all []Section
	for _, m := range d.Items {
		all = append(all, m.section())
	}
	last := Section{Heading: "no pod can be helped by moving others"}
	var lost []string
	for _, m := range d.Items {
		for _, p := range m.Moves {
			if p.Controller == "" {
				lost = append(lost, p.Namespace+"/"+p.Pod)
			}
		}
	}
	switch {
	case len(d.Items)+d.NotExamined == 0:
		last.Heading = "no pod waits for devices"
	case d.Restarts > 0:
		last.Heading = fleet.NumberVerb(d.Restarts, "pod", "restarts", "restart")
	case d.Helps():
		last.Heading = "no pod has to move"
	}
	if lost != nil {
		last.Lines = append(last.Lines, "no controller creates again: "+List(lost))
	}
	if d.Ending != nil {
		last.Lines = append(last.Lines, "end already, and count as ended: "+List(d.Ending))
	}
	if d.NotExamined > 0 {
		last.Lines = append(last.Lines, fmt.Sprintf("%s not examined: the first %d are, and none of a group or without its claims", fleet.NumberVerb(d.NotExamined, "waiting pod", "was", "were"), mostWaiting))
	}
	return append(all, last)
}

func (m MovesFor) section() Section {
	subject := fmt.Sprintf("pod %s/%s", m.Namespace, m.Pod)
	if m.Alike > 0 {
		subject += " and " + fleet.Number(m.Alike, "pod") + " like it"
	}
	if m.Outcome == RoomNone {
		return Section{Heading: subject + ": " + m.Reason}
	}
	if m.Outcome == RoomFree {
		return Section{Heading: fmt.Sprintf("%s fits on node %s: no pod has to move", subject, m.Node)}
	}
	s := Section{Heading: fmt.Sprintf("%s would run on node %s with %s after %s", subject, m.Node, List(m.Devices), fleet.Number(len(m.Moves), "move"))}
	for _, p := range m.Moves {
		s.Lines = append(s.Lines, p.text())
	}
	if m.NotExamined {
		s.Lines = append(s.Lines, foundSmallest)
	}
	return s
}

// text returns the move on one line.
func (p Move) text() string {
	text := fmt.Sprintf("%s/%s from node %s", p.Namespace, p.Pod, p.Node)
	if p.Devices != nil {
		text += " " + List(p.Devices)
	}
	text += " to node " + p.ToNode
	if p.ToDevices != nil {
		text += " " + List(p.ToDevices)
	}
	if p.Group != "" {
		text += ", with all pods of its group " + p.Group
	}
	return text + p.again()
}
