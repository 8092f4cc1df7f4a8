// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// addEnds adds the containers of a pod that have ended, now or before their last restart. It returns what to
// do about a restart, if nothing else is wrong.
func (e *explaining) addEnds(pod *corev1.Pod) (afterRestart string) {
	if pod.Status.Reason != "" && e.State == StateFailed {
		e.Outcome = OutcomeFailed
		e.Causes = append(e.Causes, strings.TrimSuffix(fmt.Sprintf("the pod has failed: %s: %s", pod.Status.Reason, pod.Status.Message), ": "))
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		last := s.LastTerminationState.Terminated
		switch {
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
			e.Facts = append(e.Facts, fmt.Sprintf("container %s has ended without an error, %s", s.Name, e.ended(s.State.Terminated)))
		case s.State.Terminated != nil:
			e.Outcome = OutcomeFailed
			e.Causes = append(e.Causes, e.endOf(s.Name, s.State.Terminated))
			e.advise(remedyOfEnd(pod, s.Name, s.State.Terminated, ""))
		case last != nil && last.ExitCode != 0 && s.State.Waiting != nil:
			e.Outcome = OutcomeFailed
			e.Causes = append(e.Causes,
				fmt.Sprintf("container %s does not run: %s, after %s", s.Name, s.State.Waiting.Reason, fleet.Number(int(s.RestartCount), "restart")),
				e.endOf(s.Name, last))
			e.advise(remedyOfEnd(pod, s.Name, last, " --previous"))
		case last != nil && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff":
			e.Outcome = OutcomeFailed
			e.Causes = append(e.Causes, fmt.Sprintf("container %s does not run: its program has ended without an error, %s, after %s", s.Name, e.ended(last), fleet.Number(int(s.RestartCount), "restart")))
			e.advise("give the container a program that continues, or run it in a Job")
		case last != nil && last.ExitCode != 0:
			e.Facts = append(e.Facts, e.endOf(s.Name, last)+"; it was started again")
			afterRestart = cmp.Or(afterRestart, remedyOfEnd(pod, s.Name, last, " --previous"))
		}
	}
	if e.State == StateFailed {
		e.Outcome = OutcomeFailed
	}
	return afterRestart
}

func (e *explaining) ended(t *corev1.ContainerStateTerminated) string {
	if t.FinishedAt.IsZero() {
		return "at an unknown time"
	}
	return fleet.Age(t.FinishedAt.Time, e.Now) + " ago"
}

// killed is the exit code of a program that SIGKILL has ended.
const killed = 137

// endOf says how a container has failed.
func (e *explaining) endOf(container string, t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("container %s failed %s: exit code %d", container, e.ended(t), t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += ", " + t.Reason
	}
	if line := tellingLine(t.Message); line != "" {
		text += ": " + line
	}
	return text
}

// remedyOfEnd returns what to do about a container that has failed. which is the flag for its log.
func remedyOfEnd(pod *corev1.Pod, container string, t *corev1.ContainerStateTerminated, which string) string {
	switch {
	case t.Reason == "OOMKilled":
		limit := "the pod sets no limit of memory"
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if q, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && c.Name == container {
				limit = "resources.limits.memory is " + q.String()
			}
		}
		return fmt.Sprintf("the kernel ended it because the memory of the node or container, not of the GPU, was used up: raise resources.limits.memory of container %s (%s), or have the program use less", container, limit)
	case isOutOfGPUMemory(t.Message):
		return "the memory of the GPU within the limits was used up: have the program use less, or claim more memory"
	case t.ExitCode == killed:
		return fmt.Sprintf("a signal ended it (SIGKILL): an eviction, a probe or a deadline; kubectl describe pod %s --namespace %s has the reason", pod.Name, pod.Namespace)
	default:
		return fmt.Sprintf("read its log: kubectl logs %s --namespace %s --container %s%s", pod.Name, pod.Namespace, container, which)
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
