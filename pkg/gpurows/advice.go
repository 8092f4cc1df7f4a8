// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
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
		fleet.ConditionHolders: {"other claims hold the devices", "wait until one of the claims that hold them ends, or end it: nothing is preempted for devices, whatever the priority of the pod"},
		fleet.ConditionTaints:  {"devices have taints", "wait until the causes of the taints have ended, or add nodes"},
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
		texts := []string{"change the pod or a node so that the reasons below end, or add nodes: no node admits the pod"}
		if slices.Contains(nearest.Excluded, fleet.Cordoned) {
			texts = append(texts, "if the node may be used again, its administrator ends the cordon: kubectl uncordon "+nearest.Node)
		}
		return texts
	case errors.Is(nearest.Problem, gpu.ErrNotReady):
		return []string{"wait until the agent of the node has published its devices"}
	case errors.Is(nearest.Problem, fleet.ErrPoolRefused):
		return []string{poolAdvice}
	case errors.Is(nearest.Problem, fleet.ErrNotExamined):
		return nil
	case nearest.Problem != nil:
		return []string{"write the claim in another shape, or mend its selectors: docs/user/shapes.md and docs/user/troubleshooting.md"}
	case nearest.Missing == nil:
		return []string{"request fewer devices: no node has so many"}
	}
	all := []string{remedies()[nearest.Missing[0]].advice}
	if nearest.Missing[0] == fleet.ConditionSelectors {
		all = append(all, selectorValues(f, checks)...)
	}
	return all
}

// addMiss adds why claims fit on no node, by the nearest miss, and the remedies.
func (e *explaining) addMiss(nearest fleet.Verdict, checks []fleet.RequestCheck, open []*resourceapi.ResourceClaim) {
	switch {
	case nearest.Excluded != nil:
		e.Causes = append(e.Causes, "no node admits the pod, for reasons apart from devices")
	case errors.Is(nearest.Problem, fleet.ErrNotExamined):
	default:
		e.Causes = append(e.Causes, fmt.Sprintf("nearest to fit is node %s: %s", nearest.Node, MissingText(nearest)))
	}
	// Only the last condition that misses is advised on, and so is the nearest one first.
	switch of := nearest.Missing; {
	case nearest.Excluded == nil && nearest.Problem == nil && len(of) > 0 && of[0] == fleet.ConditionTaints:
		e.addTaintsOf(nearest.Node, checks)
	case nearest.Excluded == nil && nearest.Problem == nil && len(of) > 0 && of[0] == fleet.ConditionSize:
		e.addReasons(nearest.Node, CodeTooSmall, 1)
	case nearest.Excluded == nil && nearest.Problem == nil && len(of) > 0 && of[0] == fleet.ConditionHolders:
		e.addReasons(nearest.Node, CodeInUse, mostEvents)
		defer func() { addOnce(&e.Advice, e.endHolders(nearest.Node, checks)...) }()
	case nearest.Excluded == nil && nearest.Problem == nil && len(of) > 0 && of[0] == fleet.ConditionClass:
		if offers := e.classOffer(open); offers != nil {
			addOnce(&e.Advice, offers...)
			return
		}
	}
	e.Advice = append(e.Advice, advice(e.cluster.Fleet, nearest, checks)...)
}

// addReasons adds why devices of a node do not meet the requests. It adds the different reasons
// with the code, up to a number of them.
func (e *explaining) addReasons(node, code string, most int) {
	var reasons []string
	for _, miss := range e.Misses {
		if miss.Node != node {
			continue
		}
		for _, r := range miss.Requests {
			for _, d := range r.Devices {
				if !slices.Contains(d.Codes, code) {
					continue
				}
				text := strings.Join(d.Reasons, "; ")
				if code == CodeTooSmall {
					text = d.Device + ": " + text
				}
				addOnce(&reasons, text)
			}
		}
	}
	e.Causes = append(e.Causes, reasons[:min(most, len(reasons))]...)
}

// endHolders returns the command that ends a pod with a device of a node. The pod is one of the
// same namespace: a user has no say in others.
func (e *explaining) endHolders(node string, checks []fleet.RequestCheck) []string {
	for _, check := range checks {
		for _, d := range check.Devices {
			if d.Device.ID.Pool != node || !slices.Contains(d.Missing, fleet.ConditionHolders) {
				continue
			}
			for _, h := range d.Device.Holders {
				for _, pod := range fleet.Consumers(h.Claim, e.cluster.Objects.Pods) {
					if pod.Namespace == e.Namespace {
						return []string{fmt.Sprintf("to end one of them, if its work is done or can wait: kubectl delete pod %s --namespace %s", pod.Name, pod.Namespace)}
					}
				}
			}
		}
	}
	return nil
}

// addTaintsOf adds the causes of the taints for which a node's devices do not meet the requests.
func (e *explaining) addTaintsOf(node string, checks []fleet.RequestCheck) {
	known := map[string]bool{}
	for _, check := range checks {
		for _, d := range check.Devices {
			if d.Device.ID.Pool != node || d.Device.Published == nil || known[d.Device.ID.Device] || !slices.Contains(d.Missing, fleet.ConditionTaints) {
				continue
			}
			known[d.Device.ID.Device] = true
			e.addTaints(d.Device)
		}
	}
	e.groupHealth()
	for _, h := range e.Health {
		since := h.Code
		if h.Since != nil {
			since += ", for " + e.age(h.Since.Time)
		}
		e.Causes = append(e.Causes, fmt.Sprintf("%s of node %s: %s (%s)", List(h.Devices), h.Node, h.Meaning, since))
		if ends := h.remedy.Ends; ends != "" {
			addOnce(&e.Advice, fmt.Sprintf("the taint of %s goes when %s; the administrator of node %s sees to it", List(h.Devices), ends, h.Node))
		} else {
			addOnce(&e.Advice, h.remedy.User)
		}
		addOnce(&e.Repairs, h.remedy.Admin)
	}
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
						texts = append(texts, fmt.Sprintf("%q (%s)", value, fleet.Number(values[value], "device")))
					}
					all = append(all, fmt.Sprintf("values of %s on these nodes: %s", name, strings.Join(texts, ", ")))
				}
			}
		}
	}
	return all
}

// refusalAdvice returns a remedy if the API server refuses to create the pod's claim: it
// names the quota or policy only in its message.
func refusalAdvice(namespace, message string) []string {
	switch {
	case strings.Contains(message, "resourceclaimtemplate") && strings.HasSuffix(message, "not found"):
		return []string{"create the claim template, or name one of the namespace: kubectl get resourceclaimtemplates --namespace " + namespace}
	case strings.Contains(message, "exceeded quota: "):
		_, name, _ := strings.Cut(message, "exceeded quota: ")
		name, _, _ = strings.Cut(name, ",")
		return []string{fmt.Sprintf("end other claims of the namespace, request less, or have an administrator raise the quota: kubectl describe resourcequota %s --namespace %s", name, namespace)}
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
