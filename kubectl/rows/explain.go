// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Explanation is the state of a pod or claim and of its devices. It has its fields in JSON and
// YAML.
type Explanation struct {
	Header
	// Subject is the pod or claim in words. One of Pod and Claim is its name.
	Subject   string `json:"subject"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// State is empty for a claim.
	State   State   `json:"state,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Causes are a sentence each, the most urgent first.
	Causes []string `json:"causes,omitempty"`
	// Health has the devices that are not well.
	Health []DeviceHealth `json:"health,omitempty"`
	// Repairs are the remedies for the administrator of the node.
	Repairs []string `json:"repairs,omitempty"`
	// Repairer is true if the user may repair nodes.
	Repairer bool `json:"repairer,omitempty"`
	// Containers have the devices of a pod that runs, and their limits.
	Containers []ContainerDevice `json:"containers,omitempty"`
	// Facts are from the pod and its claims, a sentence each.
	Facts []string `json:"facts,omitempty"`
	// Unread names the sources that are missing: nodes that were not examined, and rights that
	// the user lacks, with the unknown facts and the role that has the rights.
	Unread string `json:"unread,omitempty"`
	// Partial is true if claims that the user may not read can hold devices that seem free.
	Partial bool `json:"partial,omitempty"`
	// Nodes on which the claims fit.
	Fits []string `json:"fits,omitempty"`
	// Misses are the nodes on which they do not fit, the nearest first; not all of them.
	Misses []Miss `json:"misses,omitempty"`
	// Other is the number of further nodes.
	Other int `json:"otherNodes,omitempty"`
	// NotExamined are the nodes that the limit of the search left out.
	NotExamined []string `json:"notExaminedNodes,omitempty"`
	// Excluded are the nodes on which the pod cannot run for reasons apart from devices.
	Excluded []Excluded `json:"excludedNodes,omitempty"`
	// Advice is the remedy of the most urgent cause that has one: at most one sentence.
	Advice []string `json:"advice,omitempty"`
}

// Excluded is a node on which a pod cannot run, and why.
type Excluded struct {
	Node    string   `json:"node"`
	Reasons []string `json:"reasons"`
}

// Miss is a node on which claims do not fit.
type Miss struct {
	Node string `json:"node"`
	// Code is the code of the reason in Missing, such as [CodeInUse].
	Code     string         `json:"code"`
	Missing  string         `json:"missing"`
	Requests []RequestCheck `json:"requests,omitempty"`
}

// RequestCheck is a request of a claim, and the check of a node's devices for it.
type RequestCheck struct {
	Claim   string        `json:"claim"`
	Request string        `json:"request"`
	Wanted  int64         `json:"wanted"`
	Meeting int           `json:"meeting"`
	Devices []DeviceCheck `json:"devices,omitempty"`
	// OtherClasses is the number of devices that are not of the request's class.
	OtherClasses int `json:"otherClasses,omitempty"`
	// OtherDevices is the number of devices of the class that are left out of Devices.
	OtherDevices int `json:"otherDevices,omitempty"`
	// NotExamined is the number of devices that the limit of the search left out.
	NotExamined int `json:"notExamined,omitempty"`
}

// DeviceCheck is a device, and the reasons why it does not meet a request.
type DeviceCheck struct {
	Device string `json:"device"`
	// Codes are the codes of the conditions that the device does not meet.
	Codes   []string `json:"codes,omitempty"`
	Reasons []string `json:"reasons"`
}

// Question names a pod or claim, and bounds its explanation.
type Question struct {
	Namespace string
	// Name is the name of a pod, also after "pod/", or of a claim after "claim/".
	Name string
	// Nodes is the number of nodes that are explained device by device.
	Nodes int
	// Limit is the time for the search.
	Limit time.Duration
}

// Find returns the pod or claim of a question. Both are nil if nothing has the name.
func (c *Cluster) Find(q Question) (*corev1.Pod, *resourceapi.ResourceClaim) {
	claim, isClaim := strings.CutPrefix(q.Name, "claim/")
	pod := strings.TrimPrefix(q.Name, "pod/")
	if found := fleet.First(c.Objects.Pods, func(p *corev1.Pod) bool { return p.Namespace == q.Namespace && p.Name == pod }); found != nil && !isClaim {
		return found, nil
	}
	return nil, FindClaim(c.Objects, q.Namespace, claim)
}

// NodesOf returns the nodes whose agents are a part of the explanation of a pod.
func (c *Cluster) NodesOf(pod *corev1.Pod) []string {
	var nodes []string
	fleet.AddOnce(&nodes, pod.Spec.NodeName)
	claims, _ := c.ClaimsOf(pod)
	for _, claim := range claims {
		for _, id := range c.devicesOf(claim) {
			fleet.AddOnce(&nodes, id.Pool)
		}
	}
	return nodes
}

// Explain explains a pod or claim by the evidence. It reads nothing else. The error wraps
// [gpu.ErrNotFound] for a name of no pod and no claim.
func (c *Cluster) Explain(ctx context.Context, q Question, evidence Evidence) (Explanation, error) {
	e := explaining{Explanation: Explanation{Header: HeaderOf("Explanation")}, cluster: c, search: c.NewSearch(q.Limit), nodes: q.Nodes, Evidence: evidence}
	if e.Now.IsZero() {
		e.Now = time.Now()
	}
	pod, claim := c.Find(q)
	var err error
	switch {
	case pod != nil:
		err = e.addPod(ctx, pod)
	case claim != nil:
		e.Subject, e.Namespace, e.Claim = fmt.Sprintf("claim %s/%s", q.Namespace, claim.Name), q.Namespace, claim.Name
		err = e.addClaim(ctx, claim)
	default:
		return e.Explanation, c.notFound(q)
	}
	e.Explanation.Repairer = e.Evidence.Repairer && len(e.Repairs) > 0
	e.addUnread()
	return e.Explanation, err
}

// explaining is an explanation that is being made.
type explaining struct {
	Explanation
	Evidence
	cluster *Cluster
	search  *fleet.Search
	// nodes bounds the misses.
	nodes int
}

func (e *explaining) addClaim(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	e.Outcome = OutcomeWell
	e.addHealth(nil, []*resourceapi.ResourceClaim{claim})
	err := e.add(ctx, nil, []*resourceapi.ResourceClaim{claim})
	if since := claim.DeletionTimestamp; since != nil {
		e.Facts = append(e.Facts, fmt.Sprintf("the deletion of the claim began at %s; it goes when its pods have ended; if it has none, kubectl gpu doctor says what to do", since.UTC().Format(time.RFC3339)))
	}
	switch {
	case claim.DeletionTimestamp != nil && e.Outcome == OutcomeWell:
		e.Outcome = OutcomeWaits
	case claim.Status.Allocation != nil:
	case len(e.Fits) == 0 && !e.isUnreadable() && !e.isPartial():
		e.Outcome = OutcomeWaits
	case len(e.Fits) == 0, e.cluster.IsPartial():
		e.Outcome = OutcomeUnknown
	}
	return err
}

func (e *explaining) addPod(ctx context.Context, pod *corev1.Pod) error {
	e.Subject, e.State = fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name), stateOf(pod)
	e.Namespace, e.Pod = pod.Namespace, pod.Name
	claims, missing := e.cluster.ClaimsOf(pod)
	switch e.State {
	case StateRunning:
		e.Outcome = OutcomeWell
		afterRestart := e.addEnds(pod)
		e.addHealth(pod, claims)
		e.addRefusals(pod.Spec.NodeName, claims)
		e.addContainers(pod, claims)
		e.addWarnings(pod, missing)
		e.advise(afterRestart)
		return nil
	case StateFailed, StateSucceeded:
		e.Outcome = OutcomeWell
		e.addEnds(pod)
		if e.State == StateFailed {
			e.addHealth(pod, claims)
		}
		for _, claim := range claims {
			if claim.Status.Allocation != nil {
				e.addAllocated(claim)
			}
		}
		e.addWarnings(pod, missing)
		return nil
	case StateTerminating, StateCreating:
		e.Outcome = OutcomeWaits
		e.addTwoDrivers(pod, claims)
		e.addHealth(pod, claims)
		e.addStart(pod, claims)
	case StatePending:
		e.Outcome = OutcomeWaits
		e.addResources(pod)
	}
	if message, waits := Unscheduled(pod); waits && e.isUnreadable() {
		e.Causes = append(e.Causes, "scheduler: "+message)
	} else if waits {
		e.Facts = append(e.Facts, "scheduler: "+message)
	}
	e.Causes = append(e.Causes, missing...)
	e.addMissingClaims(pod)
	if len(claims) == 0 && len(missing) == 0 {
		e.Facts = append(e.Facts, "the pod has no claims")
	} else if err := e.add(ctx, pod, claims); err != nil {
		return err
	}
	e.addWarnings(pod, missing)
	return nil
}

// add explains claims that must fit on one node together. The pod is nil for a claim alone.
func (e *explaining) add(ctx context.Context, pod *corev1.Pod, claims []*resourceapi.ResourceClaim) error {
	var open []*resourceapi.ResourceClaim
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			open = append(open, claim)
			continue
		}
		e.addAllocated(claim)
	}
	if len(open) == 0 || e.isUnreadable() {
		return nil
	}
	if missing := e.cluster.MissingClasses(open); missing != nil {
		e.Causes = append(e.Causes, missing...)
		return nil
	}
	verdicts, err := e.search.Verdicts(ctx, pod, claims...)
	if err != nil {
		return err
	}
	if len(verdicts) == 0 {
		e.addNothingPublished()
		return nil
	}
	var checks []fleet.RequestCheck
	for _, v := range verdicts {
		switch {
		case v.Fits():
			e.Fits = append(e.Fits, v.Node)
		case v.Excluded != nil:
			e.Excluded = append(e.Excluded, Excluded{v.Node, v.Excluded})
		case errors.Is(v.Problem, fleet.ErrNotExamined):
			e.NotExamined = append(e.NotExamined, v.Node)
		case len(e.Misses) == e.nodes:
			e.Other++
		default:
			miss, found, err := e.miss(ctx, v, open)
			if err != nil {
				return err
			}
			checks = append(checks, found...)
			e.Misses = append(e.Misses, miss)
		}
	}
	if len(e.Fits) == 0 {
		names, err := e.search.ClaimNames(ctx, open)
		if err != nil && !errors.Is(err, fleet.ErrNotExamined) {
			return err
		}
		if err != nil || e.isPartial() {
			e.Unread = notExamined
		}
		// A selector that reads a name that devices lack can end the scheduling on all nodes.
		if len(names) > 0 {
			e.advise(names[0])
		}
		if err := e.addRoom(ctx, pod, verdicts[0], claims); err != nil {
			return err
		}
		e.addMiss(verdicts, checks, open)
	}
	return ctx.Err()
}

// mostDevices bounds the devices of a request that are explained on a node.
const mostDevices = 256

// notExamined says that causes and advice do not rest on all nodes and devices.
const notExamined = "not all nodes and devices were examined, so causes and advice may be wrong: search for longer (kubectl gpu explain --limit), or write simpler selectors"

// isPartial reports whether the explanation is of a part of the nodes or devices.
func (e *explaining) isPartial() bool {
	return len(e.NotExamined) > 0 || slices.ContainsFunc(e.Misses, func(m Miss) bool {
		return slices.ContainsFunc(m.Requests, func(r RequestCheck) bool { return r.NotExamined > 0 })
	})
}

func (e *explaining) miss(ctx context.Context, v fleet.Verdict, claims []*resourceapi.ResourceClaim) (Miss, []fleet.RequestCheck, error) {
	item := Miss{Node: v.Node}
	item.Code, item.Missing = e.cluster.Missing(v)
	checks, err := e.search.Check(ctx, v.Node, claims...)
	if err != nil {
		return item, nil, err
	}
	for _, a := range checks {
		r := RequestCheck{Claim: claims[a.Claim].Name, Request: a.Request, Wanted: a.Exactly.Count, Meeting: a.Meeting(), NotExamined: a.NotExamined}
		for _, d := range a.Devices {
			switch {
			case slices.Contains(d.Missing, fleet.ConditionClass):
				r.OtherClasses++
			case len(d.Missing) > 0 && len(r.Devices) == mostDevices:
				r.OtherDevices++
			default:
				codes := fleet.Each(d.Missing, func(c fleet.Condition) string { return reasons[c].code })
				if whyNot := e.cluster.Reasons(d, a.Exactly); len(whyNot) > 0 {
					r.Devices = append(r.Devices, DeviceCheck{d.Device.ID.Device, codes, whyNot})
				}
			}
		}
		item.Requests = append(item.Requests, r)
	}
	return item, checks, nil
}
