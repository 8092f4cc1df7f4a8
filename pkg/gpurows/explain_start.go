// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// addStart adds the reasons why a pod on a node does not start or end: the agent, the MPS
// supervisor, and what the agent has refused.
func (e *explaining) addStart(ctx context.Context, pod *corev1.Pod, claims []*resourceapi.ResourceClaim) error {
	if pod.DeletionTimestamp != nil {
		e.Facts = append(e.Facts, fmt.Sprintf("the pod is being deleted since %s; it stays until its containers have ended and the agent of node %s has unprepared its claims",
			pod.DeletionTimestamp.UTC().Format(time.RFC3339), OrDash(pod.Spec.NodeName)))
	}
	node := pod.Spec.NodeName
	if driver := e.cluster.Driver; e.State == StateCreating && pod.Status.Phase == corev1.PodPending && e.cluster.Objects.HasOtherDriver(driver, node, claims...) {
		e.Causes = append(e.Causes, fmt.Sprintf("two drivers of the name %s run on node %s", driver, node))
		e.Advice = append(e.Advice, fmt.Sprintf("remove one of the drivers of the name %s from node %s: the kubelet calls only the one that registered last, so the pod may stay in ContainerCreating (docs/admin/two-drivers.md#two-drivers-on-one-node)",
			driver, node))
	}
	for _, claim := range claims {
		for _, status := range claim.Status.Devices {
			for _, c := range status.Conditions {
				if e.State == StateCreating && c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionFalse {
					e.addRefusal(fmt.Sprintf("the agent of node %s refuses claim %s: ", OrDash(node), claim.Name), c.Message)
				}
			}
		}
	}
	own := slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool { return len(e.devicesOf(c)) > 0 })
	if err := e.addDriverPods(ctx, node, own, slices.ContainsFunc(claims, e.needsSupervisor)); err != nil {
		return err
	}
	e.addContainerStates(pod)
	return nil
}

// needsSupervisor reports whether a claim has shares by MPS, which end and start only with the
// supervisor.
func (e *explaining) needsSupervisor(claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	return slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		h := fleet.Holder{Claim: claim, Result: r}
		if s, reported := share(h); reported {
			return s != nil && s.Strategy == v1alpha1.StrategyMPS
		}
		d := e.cluster.Device(fleet.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device})
		_, compute := d.Promised(h)
		return h.Shared() && d.Kind.MPSShares() && compute < kind.WholeCompute
	})
}

// addDriverPods adds the state of the agent and supervisor of a node.
func (e *explaining) addDriverPods(ctx context.Context, node string, own, supervised bool) error {
	if e.from.Driver == nil || node == "" || !own {
		return nil
	}
	driver, err := e.from.Driver(ctx, node)
	if err != nil {
		return fmt.Errorf("read the driver's pods on node %s: %w", node, err)
	}
	if driver.Unread != "" {
		e.Facts = append(e.Facts, fmt.Sprintf("whether the agent of node %s runs is not known: %s", node, strings.TrimSuffix(driver.Unread, ".")))
		return nil
	}
	e.addDriverPod(node, driver.Namespace, "agent", driver.Agents, "nothing prepares or releases claims there")
	if supervised {
		e.addDriverPod(node, driver.Namespace, "supervisor", driver.Supervisors, "MPS shares do not start or end there")
	}
	return nil
}

// addDriverPod adds the state of one program of the driver on a node. In an update a node has
// two of its pods.
func (e *explaining) addDriverPod(node, namespace, program string, pods []*corev1.Pod, meaning string) {
	at := ""
	if namespace != "" {
		at = "--namespace " + namespace + " "
	}
	if len(pods) == 0 {
		e.Causes = append(e.Causes, fmt.Sprintf("no %s of the driver runs on node %s: %s", program, node, meaning))
		addOnce(&e.Advice, fmt.Sprintf("waiting does not help: have the administrator start the %s (kubectl %sget daemonsets, and the labels of node %s: docs/admin/install.md#check-the-installation)", program, at, node))
		return
	}
	pod := pods[0]
	for _, other := range pods[1:] {
		if doctor.IsReady(other) {
			pod = other
		}
	}
	age := e.age(pod.CreationTimestamp.Time)
	if pod.CreationTimestamp.IsZero() {
		age = "unknown"
	}
	if doctor.IsReady(pod) {
		e.Facts = append(e.Facts, fmt.Sprintf("%s of node %s: pod %s is ready, age %s", program, node, pod.Name, age))
		return
	}
	e.Causes = append(e.Causes, fmt.Sprintf("the %s of node %s is not ready: pod %s: %s (age %s); %s", program, node, pod.Name, doctor.WhyNotReady(pod), age, meaning))
	addOnce(&e.Advice, fmt.Sprintf("waiting helps once the %s is ready; the administrator finds the reason: kubectl %sdescribe pod %s", program, at, pod.Name))
}

// addAgentOfRunning adds a cause if no agent watches the devices of a pod that runs.
func (e *explaining) addAgentOfRunning(ctx context.Context, node string) {
	if e.from.Driver == nil {
		return
	}
	driver, err := e.from.Driver(ctx, node)
	if err != nil || driver.Unread != "" {
		return
	}
	if !slices.ContainsFunc(driver.Agents, doctor.IsReady) {
		e.addUnknown(fmt.Sprintf("no agent is ready on node %s: the health of its GPUs is not watched, and this output may be old", node),
			fmt.Sprintf("have the administrator start the agent: kubectl gpu doctor %s", node))
	}
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
			addOnce(&e.Advice, fmt.Sprintf("correct the image of container %s (%s), or the secret for its registry; the devices are not the reason", s.Name, s.Image))
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
	if at := refused.FindStringIndex(message); at != nil {
		return message[at[0]:]
	}
	for {
		at := prefixes.FindStringIndex(message)
		if at == nil || at[1] >= len(message) {
			return message
		}
		message = message[at[1]:]
	}
}

// addRefusal adds a refusal as a cause, once, and whether waiting helps.
func (e *explaining) addRefusal(prefix, message string) {
	message = core(message)
	if slices.ContainsFunc(e.Causes, func(c string) bool { return strings.HasSuffix(c, message) }) {
		return
	}
	e.Causes = append(e.Causes, prefix+message)
	addOnce(&e.Advice, waiting(message))
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

// addWarnings adds the latest warnings of a pod, and remedies. A warning is, for example,
// the reason why its claims are not created or not prepared. Those of the scheduler are in
// the pod's condition.
func (e *explaining) addWarnings(ctx context.Context, pod *corev1.Pod) error {
	if e.from.Warnings == nil {
		return nil
	}
	events, err := e.from.Warnings(ctx, pod)
	if errors.Is(err, gpu.ErrPermission) {
		e.Facts = append(e.Facts, "you have no right to list events, which may have the reason")
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return when(b).Compare(when(a).Time) })
	var seen []string
	for _, event := range events {
		message := core(event.Message)
		text := fmt.Sprintf("event %s: %s", event.Reason, message)
		if len(seen) == mostEvents || slices.Contains(seen, text) {
			continue
		}
		seen = append(seen, text)
		if event.Reason == "FailedPrepareDynamicResources" && e.State == StateCreating {
			e.addRefusal("", message)
		}
		if event.Reason == "FailedResourceClaimCreation" && len(e.Causes) < mostEvents && e.State == StatePending {
			e.Causes = append(e.Causes, message)
		}
		addOnce(&e.Advice, refusalAdvice(pod.Namespace, event.Message)...)
		// A cause is not printed again among the facts.
		if !slices.ContainsFunc(e.Causes, func(c string) bool { return strings.HasSuffix(c, message) }) {
			e.Facts = append(e.Facts, text)
		}
	}
	return nil
}
