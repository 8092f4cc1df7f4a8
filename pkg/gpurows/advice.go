// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// remedy is the reason why a condition is not met, and the advice.
type remedy struct{ reason, advice string }

const poolAdvice = "have the driver named above publish its devices again, by restarting its pod on the node, and report it to its authors: its ResourceSlices contradict each other"

// remedies returns the remedy of each condition.
func remedies() map[fleet.Condition]remedy {
	return map[fleet.Condition]remedy{
		fleet.ConditionHolders: {"other claims hold the devices", "wait until one of the claims named above ends, or end it: nothing is preempted for devices, whatever the priority of the pod"},
		fleet.ConditionTaints:  {"devices have taints", "clear the taint (kubectl gpu get shows it; an unhealthy GPU needs a repair), or tolerate it in the request"},
		fleet.ConditionConstraints: {
			"no such group of devices meets the constraints of the claim",
			"request fewer devices, or drop the constraint: kubectl gpu topo NODE shows which devices belong together",
		},
		fleet.ConditionSelectors: {"no device meets the selectors", "change the selector"},
		fleet.ConditionSize:      {"no device is large enough", "request less: no device of the class has so much"},
		fleet.ConditionClass: {
			"it has no device of the class",
			"offer such devices on a node (chart value offer, or nodeConfigs), or name another class: kubectl gpu free lists classes with free",
		},
		fleet.ConditionPool: {"the scheduler refuses the pool of its devices", poolAdvice},
	}
}

// MissingText returns the reason why claims do not fit on a node. Conditions besides the first
// are dropped to find it.
func MissingText(v fleet.Verdict) string {
	switch {
	case v.Problem != nil:
		return v.Problem.Error()
	case v.Missing == nil:
		return "it has too few devices"
	default:
		return remedies()[v.Missing[0]].reason
	}
}

// advice returns remedies for claims that fit on no node, by the nearest miss.
func advice(f *fleet.Fleet, nearest fleet.Verdict, checks []fleet.RequestCheck) []string {
	switch {
	case nearest.Excluded != nil:
		return []string{"change the pod or a node so that the reasons above end, or add nodes: no node admits the pod"}
	case errors.Is(nearest.Problem, gpu.ErrNotReady):
		return []string{"wait until the agent of the node has published its devices"}
	case errors.Is(nearest.Problem, fleet.ErrPoolRefused):
		return []string{poolAdvice}
	case errors.Is(nearest.Problem, fleet.ErrNotExamined):
		return nil
	case nearest.Problem != nil:
		return []string{"write the claim in another shape, or mend its selectors: docs/shapes.md and docs/troubleshooting.md"}
	case nearest.Missing == nil:
		return []string{"request fewer devices: no node has so many"}
	}
	all := []string{remedies()[nearest.Missing[0]].advice}
	if nearest.Missing[0] == fleet.ConditionSelectors {
		all = append(all, selectorValues(f, checks)...)
	}
	return all
}

// selectorValues lists the existing values of the names in failing selectors.
func selectorValues(f *fleet.Fleet, checks []fleet.RequestCheck) []string {
	var all []string
	seen := map[fleet.Name]bool{}
	for _, a := range checks {
		for _, d := range a.Devices {
			for _, i := range d.Selectors {
				for _, name := range fleet.NamesIn(a.Exactly.Selectors[i].CEL.Expression) {
					if seen[name] {
						continue
					}
					seen[name] = true
					values := f.Values(a.Devices, name)
					if len(values) == 0 {
						continue
					}
					var texts []string
					for _, value := range slices.Sorted(maps.Keys(values)) {
						texts = append(texts, fmt.Sprintf("%q (%d devices)", value, values[value]))
					}
					all = append(all, fmt.Sprintf("values of %s on these nodes: %s", name, strings.Join(texts, ", ")))
				}
			}
		}
	}
	return all
}

// MissingClasses returns a sentence for each DeviceClass that does not exist.
func MissingClasses(f *fleet.Fleet, claims []*resourceapi.ResourceClaim) []string {
	var all []string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			var names []string
			if r.Exactly != nil {
				names = append(names, r.Exactly.DeviceClassName)
			}
			for _, alternative := range r.FirstAvailable {
				names = append(names, alternative.DeviceClassName)
			}
			for _, name := range names {
				if !f.HasClass(name) {
					all = append(all, fmt.Sprintf("create the DeviceClass %s of request %s of claim %s, or name another: kubectl get deviceclasses", name, r.Name, claim.Name))
				}
			}
		}
	}
	return all
}

// mostEvents bounds the events of an explanation.
const mostEvents = 3

// addWarnings adds the latest warnings of a pod, and remedies. A warning is, for example,
// the reason why its claims are not created or not prepared. Those of the scheduler are in
// the pod's condition.
func (e *Explanation) addWarnings(ctx context.Context, pod *corev1.Pod, warnings func(context.Context, *corev1.Pod) ([]corev1.Event, error)) error {
	events, err := warnings(ctx, pod)
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
		text := fmt.Sprintf("event %s: %s", event.Reason, event.Message)
		if len(seen) < mostEvents && !slices.Contains(seen, text) {
			seen = append(seen, text)
			e.Advice = append(e.Advice, refusalAdvice(event.Message)...)
		}
	}
	e.Facts, e.Advice = append(e.Facts, seen...), slices.Compact(e.Advice)
	return nil
}

// refusalAdvice returns a remedy if the API server refuses to create the pod's claim: it
// names the quota or policy only in its message.
func refusalAdvice(message string) []string {
	switch {
	case strings.Contains(message, "exceeded quota: "):
		_, name, _ := strings.Cut(message, "exceeded quota: ")
		name, _, _ = strings.Cut(name, ",")
		return []string{fmt.Sprintf("end other claims of the namespace, request less, or have an administrator raise the quota: kubectl describe resourcequota %s", name)}
	case strings.Contains(message, "ValidatingAdmissionPolicy "):
		return []string{"change the claim as the policy in the event requires; the administrator of the cluster has set it"}
	default:
		return nil
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
