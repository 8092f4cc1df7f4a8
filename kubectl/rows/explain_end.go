// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// addEnds adds the containers of a pod that have ended, now or before their last restart.
func (e *explaining) addEnds(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) {
	if pod.Status.Reason != "" && e.State == StateFailed {
		e.Outcome = OutcomeFailed
		e.Causes = append(e.Causes, strings.TrimSuffix(fmt.Sprintf("the pod has failed: %s: %s", pod.Status.Reason, pod.Status.Message), ": "))
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
			e.Facts = append(e.Facts, fmt.Sprintf("container %s has ended without an error, %s", s.Name, e.ended(s.State.Terminated)))
		case s.State.Terminated != nil:
			e.Outcome = OutcomeFailed
			e.addEnd(pod, claims, s.Name, s.State.Terminated, false)
		case s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.ExitCode != 0:
			if w := s.State.Waiting; w != nil {
				e.Outcome = OutcomeFailed
				e.Causes = append(e.Causes, fmt.Sprintf("container %s does not run: %s, after %s", s.Name, w.Reason, fleet.Number(int(s.RestartCount), "restart")))
			}
			e.addEnd(pod, claims, s.Name, s.LastTerminationState.Terminated, true)
		}
	}
	if e.State == StateFailed {
		e.Outcome = OutcomeFailed
	}
}

func (e *explaining) ended(t *corev1.ContainerStateTerminated) string {
	if t.FinishedAt.IsZero() {
		return "at an unknown time"
	}
	return e.age(t.FinishedAt.Time) + " ago"
}

// killed is the exit code of a program that SIGKILL has ended.
const killed = 137

func (e *explaining) addEnd(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, container string, t *corev1.ContainerStateTerminated, restarted bool) {
	text := fmt.Sprintf("container %s failed %s: exit code %d", container, e.ended(t), t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += ", " + t.Reason
	}
	if line := tellingLine(t.Message); line != "" {
		text += ": " + line
	}
	if !restarted || e.Outcome == OutcomeFailed {
		e.Causes = append(e.Causes, text)
	} else {
		e.Facts = append(e.Facts, text+"; it was started again")
	}
	previous := ""
	if restarted {
		previous = " --previous"
	}
	switch {
	case t.Reason == "OOMKilled":
		limit := "the pod sets no limit of memory"
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if q, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && c.Name == container {
				limit = "resources.limits.memory is " + q.String()
			}
		}
		e.Advice = append(e.Advice, fmt.Sprintf("the kernel ended it because the memory of the node or container, not of the GPU, was used up: raise resources.limits.memory of container %s (%s), or have the program use less", container, limit))
	case isOutOfGPUMemory(t.Message):
		e.Advice = append(e.Advice, fmt.Sprintf("the memory of the GPU within the limits was used up: have the program use less, or claim more memory%s", e.termsOf(pod, claims, container)))
	case t.ExitCode == killed:
		e.Advice = append(e.Advice, fmt.Sprintf("a signal ended it (SIGKILL): an eviction, a probe or a deadline; kubectl describe pod %s --namespace %s has the reason", pod.Name, pod.Namespace))
	default:
		e.Advice = append(e.Advice, fmt.Sprintf("read its log: kubectl logs %s --namespace %s --container %s%s", pod.Name, pod.Namespace, container, previous))
		if t.Message == "" {
			e.Advice = append(e.Advice, fmt.Sprintf("set terminationMessagePolicy: FallbackToLogsOnError for container %s, so that the end of its log is printed here the next time", container))
		}
	}
}

// isOutOfGPUMemory reports whether the last message of a program is about the memory of the
// GPU: one of CUDA or of a framework.
func isOutOfGPUMemory(message string) bool {
	text := strings.ToLower(message)
	has := func(phrases ...string) bool {
		return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(text, phrase) })
	}
	return has("cuda_error_out_of_memory", "cudaerrormemoryallocation", "outofmemoryerror: cuda") || has("out of memory") && has("cuda", "gpu")
}

// termsOf returns the limits of a container after a colon; "" if none is known.
func (e *explaining) termsOf(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, container string) string {
	var terms []string
	for _, claim := range claims {
		for _, id := range e.cluster.devicesOf(claim) {
			d := e.cluster.Device(id)
			for _, h := range d.Holders {
				if h.Claim.UID != claim.UID {
					continue
				}
				for _, row := range rowsOf(id.Pool, d, h, nil) {
					if row.Pod == pod.Name && (row.Container == container || row.Container == "") || row.Pod == "" {
						addOnce(&terms, row.Terms()...)
					}
				}
			}
		}
	}
	if terms == nil {
		return ""
	}
	return ": " + strings.Join(terms, "; ")
}

// tellingLine returns the last line of a message about the memory of the GPU. If there is none, it
// returns the last line that is not empty. A program may print more after the error, and a
// container runtime mixes its two outputs. The length is limited.
func tellingLine(message string) string {
	const most = 300
	lines := strings.Split(strings.TrimSpace(message), "\n")
	told := lines[len(lines)-1]
	for _, l := range lines {
		if isOutOfGPUMemory(l) {
			told = l
		}
	}
	line := []rune(strings.TrimSpace(told))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}

// addPastClaims adds the claims of a pod that has ended, with their devices if they still have
// some.
func (e *explaining) addPastClaims(pod *corev1.Pod) {
	for _, entry := range pod.Spec.ResourceClaims {
		name := entry.ResourceClaimName
		if i := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == entry.Name }); i >= 0 {
			name = pod.Status.ResourceClaimStatuses[i].ResourceClaimName
		}
		if name == nil {
			continue
		}
		claim := FindClaim(e.cluster.Objects, pod.Namespace, *name)
		switch {
		case claim == nil:
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s has been deleted with its pod, and its devices are free", *name))
		case claim.Status.Allocation == nil:
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s has no devices any longer", *name))
		case len(fleet.Consumers(claim, []*corev1.Pod{pod})) == 0:
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s is no longer reserved for the pod", *name))
			e.addAllocated(claim)
		default:
			e.addAllocated(claim)
		}
	}
}
