// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// addStart adds the reasons why a pod on a node does not start or end: the agent, the MPS
// supervisor, and what the agent has refused.
func (e *explaining) addStart(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) {
	if pod.DeletionTimestamp != nil {
		e.Facts = append(e.Facts, fmt.Sprintf("the pod is being deleted and has time to end until %s; it stays until its containers have ended and the agent of node %s has unprepared its claims",
			pod.DeletionTimestamp.UTC().Format(time.RFC3339), OrDash(pod.Spec.NodeName)))
	}
	node := pod.Spec.NodeName
	e.addRefusals(node, claims)
	if slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool { return len(e.cluster.devicesOf(c)) > 0 }) {
		e.addDriverPods(node, slices.ContainsFunc(claims, e.needsSupervisor))
	}
	e.addContainerStates(pod)
}

// addTwoDrivers adds a cause if a pod does not start because of two drivers of one name. The kubelet
// calls only one of them.
func (e *explaining) addTwoDrivers(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) {
	driver, node := e.cluster.Driver, pod.Spec.NodeName
	if e.State != StateCreating || pod.Status.Phase != corev1.PodPending || !e.cluster.Objects.HasOtherDriver(driver, node, claims...) {
		return
	}
	e.Causes = append(e.Causes, fmt.Sprintf("two drivers of the name %s run on node %s", driver, node))
	e.advise(fmt.Sprintf("remove one of the drivers of the name %s from node %s: the kubelet calls only the one that registered last, so the pod may stay in ContainerCreating: %s",
		driver, node, gpu.Page("docs/admin/migration.md#two-drivers-on-one-node")))
}

// addRefusals adds what the agent has refused. For a pod that runs, that is a cause if nothing
// else is: a container that ends does not start again.
func (e *explaining) addRefusals(node string, claims []*resourceapi.ResourceClaim) {
	runs := e.State == StateRunning && e.Outcome == OutcomeWell
	for _, claim := range claims {
		for _, status := range claim.Status.Devices {
			for _, c := range status.Conditions {
				if status.Driver != e.cluster.Driver || c.Type != v1alpha1.ConditionReady || c.Status != metav1.ConditionFalse {
					continue
				}
				agent := "the agent of node " + OrDash(node)
				switch {
				case c.Reason == v1alpha1.ReasonUnprepareRetried:
					if e.State == StateCreating || e.State == StateTerminating {
						e.addRefusal(fmt.Sprintf("%s cannot release claim %s: ", agent, claim.Name), c.Message)
					}
				case runs:
					e.addRefusal(fmt.Sprintf("no container of the pod starts again: %s cannot prepare claim %s again: ", agent, claim.Name), c.Message)
					e.Outcome = OutcomeFault
				case e.State == StateCreating:
					e.addRefusal(fmt.Sprintf("%s refuses claim %s: ", agent, claim.Name), c.Message)
				}
			}
		}
	}
}

// needsSupervisor reports whether a claim has shares by MPS, which end and start only with the
// supervisor.
func (e *explaining) needsSupervisor(claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	return slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		h := fleet.Holder{Claim: claim, Result: r}
		if s, reported := h.Share(); reported {
			return s != nil && s.Strategy == v1alpha1.StrategyMPS
		}
		d := e.cluster.Device(fleet.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
		_, compute := d.Promised(h)
		return h.Shared() && d.Kind.MPSShares() && compute < kind.WholeCompute
	})
}

// addDriverPods adds the state of the agent and supervisor of a node.
func (e *explaining) addDriverPods(node string, supervised bool) {
	if e.Driver == nil {
		e.addAgent(node)
		return
	}
	if node == "" || e.addNodeNotReady(node) {
		return
	}
	if unread := e.driverUnread(); unread != "" {
		e.Facts = append(e.Facts, fmt.Sprintf("whether the agent of node %s runs is not known: %s", node, strings.TrimSuffix(unread, ".")))
		return
	}
	e.addDriverPod(node, "agent", e.Driver.Agents, "nothing prepares or releases claims there")
	if supervised {
		e.addDriverPod(node, "supervisor", e.Driver.Supervisors, "MPS shares do not start or end there")
	}
}

// driverUnread returns the reason why the driver's pods are not known; "" if they are.
func (e *explaining) driverUnread() string {
	if len(e.Driver.DaemonSets) == 0 && e.Driver.Unread[doctor.DriverPods] == "" {
		return fmt.Sprintf("no DaemonSet of the driver %s is found; --driver-namespace names its namespace", e.cluster.Driver)
	}
	return e.Driver.Unread[doctor.DriverPods]
}

// addNodeNotReady reports whether a node is not ready, and adds that as a cause. What its kubelet
// last said of pods there is then old.
func (e *explaining) addNodeNotReady(name string) bool {
	for _, node := range e.cluster.Objects.Nodes {
		since, down := notReadySince(node.Status.Conditions)
		if node.Name != name || !down {
			continue
		}
		text := fmt.Sprintf("node %s is not ready", name)
		if since != nil {
			text += " for " + fleet.Age(since.Time, e.Now)
		}
		e.addUnknown(text+": its kubelet reports nothing, and pods do not start or end there", "the administrator finds the reason: kubectl describe node "+name)
		return true
	}
	return false
}

// addDriverPod adds the state of one program of the driver on a node. In an update a node has
// two of its pods.
func (e *explaining) addDriverPod(node, program string, pods []*corev1.Pod, meaning string) {
	remedy := fmt.Sprintf("the administrator finds the reason: kubectl gpu doctor %s", node)
	var pod *corev1.Pod
	for _, other := range pods {
		if other.Spec.NodeName == node && (pod == nil || fleet.IsReady(other)) {
			pod = other
		}
	}
	if pod == nil {
		e.Causes = append(e.Causes, fmt.Sprintf("no %s of the driver runs on node %s: %s", program, node, meaning))
		e.advise(remedy)
		return
	}
	age := fleet.Age(pod.CreationTimestamp.Time, e.Now)
	if pod.CreationTimestamp.IsZero() {
		age = "unknown"
	}
	if fleet.IsReady(pod) {
		e.Facts = append(e.Facts, fmt.Sprintf("%s of node %s: pod %s is ready, age %s", program, node, pod.Name, age))
		return
	}
	e.Causes = append(e.Causes, fmt.Sprintf("the %s of node %s is not ready: pod %s: %s (age %s); %s", program, node, pod.Name, doctor.WhyNotReady(pod), age, meaning))
	e.advise(remedy)
}

// addAgent adds a cause if no agent is ready on a node. Without an agent in the whole cluster, the driver
// may be in a namespace that was not read.
func (e *explaining) addAgent(node string) {
	agents := e.cluster.Agents
	if node == "" || e.addNodeNotReady(node) || agents == nil || agents[node].Ready || len(agents) == 0 && (e.Driver == nil || e.driverUnread() != "") {
		return
	}
	e.addUnknown(fmt.Sprintf("no agent is ready on node %s: the health of its GPUs is not watched, claims are not prepared or released, and this output may be old", node),
		"the administrator finds the reason: kubectl gpu doctor "+node)
}

// addContainerStates adds the reasons for which the kubelet waits with containers, apart from
// the usual ones.
func (e *explaining) addContainerStates(pod *corev1.Pod) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := s.State.Waiting
		if w == nil || slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason) {
			continue
		}
		e.Causes = append(e.Causes, strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", s.Name, w.Reason, w.Message), ": "))
		if strings.Contains(w.Reason, "Image") {
			e.advise(fmt.Sprintf("correct the image of container %s (%s), or the secret for its registry; the devices are not the reason", s.Name, s.Image))
		}
	}
}

// refused matches the first words of a refusal by the agent. The kubelet and the helper of
// Kubernetes put prefixes before them.
var refused = regexp.MustCompile(`request [^ ,:]+, device [^ ,:]+: `)

// prefixes match what precedes the sentence of the program that failed.
var prefixes = regexp.MustCompile(`^(Failed to prepare dynamic resources|Error: |prepare dynamic resources|unprepare dynamic resources|NodePrepareResources( failed)?( for ResourceClaim [^ :]+| for claim [^ :]+)?|NodeUnprepareResources( failed)?( for ResourceClaim [^ :]+)?|rpc error: code = \w+ desc =|prepare resource claims|error preparing claim [^ :]+|claim [^ :]+/[^ :]+|PodResourceClaim [^ :]+)(: | )`)

// core returns the sentence of a refusal without the prefixes of the programs that pass it on.
func core(message string) string {
	if found := refused.FindStringIndex(message); found != nil {
		return message[found[0]:]
	}
	for {
		found := prefixes.FindStringIndex(message)
		if found == nil || found[1] >= len(message) {
			return message
		}
		message = message[found[1]:]
	}
}

// addRefusal adds a refusal as a cause, once, and whether waiting helps.
func (e *explaining) addRefusal(prefix, message string) {
	message = core(message)
	if !e.isCause(message) {
		e.Causes = append(e.Causes, prefix+message)
		e.advise(waiting(message))
	}
}

// isCause reports whether a cause ends with a message. Other words precede it there, also a part of
// it: the event "Error: no such image" repeats the cause "CreateContainerError: no such image".
func (e *explaining) isCause(message string) bool {
	return slices.ContainsFunc(e.Causes, func(c string) bool { return strings.HasSuffix(c, message) })
}

// waiting returns whether it helps to wait after a refusal, by the term of its sentinel error:
// see the event texts in docs/user/events.md.
func waiting(message string) string {
	const retry = "; the kubelet tries again about every 90 seconds"
	for _, term := range []struct {
		err    error
		advice string
	}{
		{gpu.ErrInUse, "waiting helps: until the claim, process or pod that the cause names has ended" + retry},
		{gpu.ErrNotReady, "waiting helps: until the NVIDIA driver is loaded and the MPS supervisor runs" + retry},
		{gpu.ErrTimeout, "waiting often helps: the hardware or a daemon did not answer in time" + retry},
		{gpu.ErrInvalid, "waiting does not help: change the claim or its configuration as the cause says, and create the pod again"},
		{gpu.ErrNotSupported, "waiting does not help: choose another node or another configuration, and create the pod again"},
		{gpu.ErrNotFound, "waiting does not help: delete the pod, so that it gets another device"},
		{gpu.ErrNoCapacity, "waiting helps when other claims of the device end" + retry},
		{gpu.ErrLost, "waiting does not help: delete the pod, so that it gets another device"},
		{gpu.ErrUnhealthy, "waiting does not help: delete the pod, so that it gets another device"},
		{gpu.ErrPermission, "waiting does not help: have the administrator read the log of the agent of the node"},
		{gpu.ErrCorrupt, "waiting does not help: have the administrator read the log of the agent of the node, and its folder quarantine"},
	} {
		if strings.Contains(message, term.err.Error()) {
			return term.advice
		}
	}
	return ""
}

// mostEvents bounds the events of an explanation.
const mostEvents = 3

// addWarnings adds the latest warnings of a pod, with their age. A warning is, for example, the
// reason why its claims are not created or not prepared. It is a cause, with a remedy, only while
// the pod waits for that: missing are the claims that are not created. Those of the scheduler are
// in the pod's condition.
func (e *explaining) addWarnings(pod *corev1.Pod, missing []string) {
	if e.NoEvents {
		e.Facts = append(e.Facts, "you have no right to list events, which may have the reason")
	}
	events := slices.SortedStableFunc(slices.Values(e.Warnings), func(a, b corev1.Event) int { return when(b).Compare(when(a).Time) })
	var seen []string
	told := false
	for _, event := range events {
		message := core(event.Message)
		if len(seen) == mostEvents || slices.Contains(seen, event.Reason+message) {
			continue
		}
		seen = append(seen, event.Reason+message)
		switch {
		case event.Reason == failedPrepare && e.State == StateCreating && wentOn(pod, event).IsZero():
			e.addRefusal("", message)
		case (event.Reason == v1alpha1.ReasonProgramFault || event.Reason == v1alpha1.ReasonSharedFault) && e.Outcome == OutcomeFailed:
			if !told {
				e.addProgramFault(message, fleet.Age(when(event).Time, e.Now))
				told = true
				continue
			}
		case event.Reason == "FailedResourceClaimCreation" && e.State == StatePending && len(missing) > 0:
			fleet.AddOnce(&e.Causes, message)
			e.advise(refusalAdvice(pod.Namespace, event.Message))
		}
		// A cause is not printed again among the facts.
		if !e.isCause(message) {
			e.Facts = append(e.Facts, fmt.Sprintf("event %s, %s: %s", event.Reason, e.eventAge(event, pod), message))
		}
	}
}

// addProgramFault adds the event of a fault as the first cause, with its remedy.
func (e *explaining) addProgramFault(message, age string) {
	what, remedy, _ := strings.Cut(message, ". What to do: ")
	e.Causes = slices.Insert(e.Causes, 0, fmt.Sprintf("%s (%s ago)", what, age))
	remedy = strings.TrimSuffix(remedy, ".")
	if remedy != "" {
		e.Advice = []string{remedy}
	}
}

// eventAge returns the age of an event, and when the state that it speaks of ended.
func (e *explaining) eventAge(event corev1.Event, pod *corev1.Pod) string {
	seen := when(event)
	text := fleet.Age(seen.Time, e.Now) + " ago"
	if seen.IsZero() {
		text = "at an unknown time"
	}
	if strings.HasPrefix(event.Reason, "Failed") {
		if at := wentOn(pod, event); !at.IsZero() {
			return text + ", ended " + fleet.Age(at, e.Now) + " ago"
		}
	}
	return text
}

// failedPrepare is the reason of the kubelet's event about claims that are not prepared.
const failedPrepare = "FailedPrepareDynamicResources"

// wentOn returns when the start of a pod went on after an event about a delay of it; zero if it did not.
// The kubelet prepares claims before it makes the pod ready for containers.
func wentOn(pod *corev1.Pod, event corev1.Event) time.Time {
	seen := when(event)
	for _, c := range pod.Status.Conditions {
		if event.Reason == failedPrepare && c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(seen.Time) {
			return c.LastTransitionTime.Time
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, started := range []metav1.Time{startOf(s.State), startOf(s.LastTerminationState)} {
			if started.After(seen.Time) {
				return started.Time
			}
		}
	}
	return time.Time{}
}

// startOf returns when a container in the state started; zero if it has not.
func startOf(s corev1.ContainerState) metav1.Time {
	switch {
	case s.Running != nil:
		return s.Running.StartedAt
	case s.Terminated != nil:
		return s.Terminated.StartedAt
	default:
		return metav1.Time{}
	}
}

// when returns the time of an event, in the field that its reporter has set.
func when(event corev1.Event) metav1.Time {
	switch {
	case event.Series != nil:
		return metav1.Time{Time: event.Series.LastObservedTime.Time}
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp
	case !event.EventTime.IsZero():
		return metav1.Time{Time: event.EventTime.Time}
	default:
		return event.CreationTimestamp
	}
}

// refusalAdvice returns a remedy if the API server refuses to create the pod's claim: it
// names the quota or policy only in its message.
func refusalAdvice(namespace, message string) string {
	switch {
	case strings.Contains(message, "resourceclaimtemplate") && strings.HasSuffix(message, "not found"):
		return "create the claim template, or name one of the namespace: kubectl get resourceclaimtemplates --namespace " + namespace
	case strings.Contains(message, "exceeded quota: "):
		return "end other claims of the namespace, request less, or have an administrator raise the quota"
	case strings.Contains(message, "ValidatingAdmissionPolicy "):
		return "change the claim as the policy in the event requires; the administrator of the cluster has set it"
	default:
		return ""
	}
}
