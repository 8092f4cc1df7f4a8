// SPDX-License-Identifier: Apache-2.0

package rows

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

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MissingText returns the reason why claims do not fit on a node. Conditions besides the first
// are dropped to find it.
func (c *Cluster) MissingText(v fleet.Verdict) string {
	switch {
	case v.Problem != nil:
		return v.Problem.Error()
	case v.Missing == nil && !c.Publishes(v.Node):
		return "it publishes no devices"
	case v.Missing == nil:
		return "it has too few devices"
	}
	switch v.Missing[0] {
	case fleet.ConditionHolders:
		return "other claims hold the devices"
	case fleet.ConditionTaints:
		return "devices have taints"
	case fleet.ConditionConstraints:
		return "no such group of devices meets the constraints of the claim"
	case fleet.ConditionSelectors:
		return "no device meets the selectors"
	case fleet.ConditionSize:
		return "no device is large enough"
	case fleet.ConditionPool:
		return "the scheduler refuses the pool of its devices"
	case fleet.ConditionClass:
	}
	return "it has no device of the class"
}

// addNothingPublished adds that there is no device to choose from: no change of the claim helps.
func (e *explaining) addNothingPublished() {
	e.Causes = append(e.Causes, "no node publishes devices")
	e.Advice = append(e.Advice, "the administrator finds the reason: kubectl gpu doctor")
}

// addMiss adds why claims fit on no node, by the nearest miss, and the remedy. Advice is about the
// first condition that is not met.
func (e *explaining) addMiss(ctx context.Context, pod *corev1.Pod, verdicts []fleet.Verdict, checks []fleet.RequestCheck, open []*resourceapi.ResourceClaim) {
	nearest := verdicts[0]
	if nearest.Excluded != nil {
		e.addExcluded(nearest)
		return
	}
	if errors.Is(nearest.Problem, fleet.ErrNotExamined) {
		return
	}
	if nearest.Problem == nil && nearest.Missing == nil && !slices.ContainsFunc(verdicts, func(v fleet.Verdict) bool { return e.cluster.Publishes(v.Node) }) {
		e.addNothingPublished()
		return
	}
	e.Causes = append(e.Causes, fmt.Sprintf("nearest to fit is node %s: %s", nearest.Node, e.cluster.MissingText(nearest)))
	e.addOtherDrivers(checks)
	advise := func(texts ...string) { addOnce(&e.Advice, texts...) }
	switch {
	case errors.Is(nearest.Problem, gpu.ErrNotReady):
		advise("wait until the agent of the node has published its devices")
		return
	case errors.Is(nearest.Problem, fleet.ErrPoolRefused):
		advise("have the driver that the reason names publish its devices again, by a restart of its pod on the node: its ResourceSlices contradict each other")
		return
	case nearest.Problem != nil:
		advise("write the claim in another shape, or mend its selectors: " + gpu.Page("docs/user/shapes.md#claims-that-the-scheduler-answers-quickly"))
		return
	case nearest.Missing == nil:
		advise("request fewer devices: no node has so many")
		return
	}
	switch nearest.Missing[0] {
	case fleet.ConditionTaints:
		e.addTaintsOf(nearest.Node, checks)
	case fleet.ConditionSize:
		e.addReasons(nearest.Node, CodeTooSmall, 1)
		advise("request less: no device of the class has so much")
	case fleet.ConditionHolders:
		e.addReasons(nearest.Node, CodeInUse, mostEvents)
		advise("wait until enough of these claims end: nothing is preempted for devices, whatever the priority of the pod")
		advise(e.smaller(ctx, nearest, open), e.ending(ctx, pod, verdicts, open))
	case fleet.ConditionClass:
		if offers := e.classOffer(open); offers != nil {
			advise(offers...)
		} else {
			advise("name another class: kubectl gpu free lists those with free devices")
		}
	case fleet.ConditionConstraints:
		advise("request fewer devices, or drop the constraint: kubectl gpu topo " + nearest.Node + " shows which devices belong together")
	case fleet.ConditionSelectors:
		if offers := e.classOffer(open, v1alpha1.OfferMIG); offers != nil {
			advise(offers...)
			return
		}
		advise("change the selector")
		advise(selectorValues(e.cluster.Fleet, checks)...)
	case fleet.ConditionPool:
	}
}

// addExcluded adds why no node admits the pod, for reasons apart from devices.
func (e *explaining) addExcluded(nearest fleet.Verdict) {
	e.Causes = append(e.Causes, "no node admits the pod, for reasons apart from devices")
	if slices.Contains(nearest.Excluded, fleet.Cordoned) {
		addOnce(&e.Advice, "if the node may be used again, its administrator ends the cordon: kubectl uncordon "+nearest.Node)
		return
	}
	for _, taint := range nearest.Taints {
		addOnce(&e.Advice, fmt.Sprintf("node %s is for pods that tolerate its taint: tolerations: [{key: %q, operator: Equal, value: %q, effect: %s}]", nearest.Node, taint.Key, taint.Value, taint.Effect))
	}
}

// addOtherDrivers names the driver of the devices that claims are for, if it is not this one.
func (e *explaining) addOtherDrivers(checks []fleet.RequestCheck) {
	for _, check := range checks {
		drivers := map[string]bool{}
		for _, d := range check.Devices {
			if !slices.Contains(d.Missing, fleet.ConditionClass) {
				drivers[d.Device.ID.Driver] = true
			}
		}
		if len(drivers) > 0 && !drivers[e.cluster.Driver] {
			addOnce(&e.Facts, fmt.Sprintf("the devices of request %s are of the driver %s, not of %s", check.Request, List(slices.Sorted(maps.Keys(drivers))), e.cluster.Driver))
		}
	}
}

// smaller returns the largest share that fits now on the nearest node. It returns "" if there is
// none, or if claims that the user may not read can hold the rest.
func (e *explaining) smaller(ctx context.Context, nearest fleet.Verdict, open []*resourceapi.ResourceClaim) string {
	if len(open) != 1 || e.cluster.IsPartial() {
		return ""
	}
	most := e.search.LargestMemory(ctx, nearest.Node, open[0])
	if most.IsZero() {
		return ""
	}
	return fmt.Sprintf("a share of %s fits on node %s now", &most, nearest.Node)
}

// ending returns the command that ends the fewest pods of the namespace without which the pod fits.
// It returns "" if that is not proven: the user may not read all claims and pods, other pods wait
// for devices too, or a controller starts the pods again.
func (e *explaining) ending(ctx context.Context, pod *corev1.Pod, verdicts []fleet.Verdict, open []*resourceapi.ResourceClaim) string {
	if e.cluster.IsPartial() || slices.ContainsFunc(e.cluster.WaitingPods(), func(p WaitingPod) bool {
		return p.Node == "" && (pod == nil || p.Namespace != pod.Namespace || p.Name != pod.Name)
	}) {
		return ""
	}
	mayEnd := func(p *corev1.Pod) bool { return p.Namespace == e.Namespace && metav1.GetControllerOf(p) == nil }
	var fewest []*corev1.Pod
	for i, v := range verdicts {
		if i == e.nodes || !slices.Equal(v.Missing, []fleet.Condition{fleet.ConditionHolders}) {
			break
		}
		pods, err := e.search.Ending(ctx, v.Node, mayEnd, open...)
		if err == nil && len(pods) > 0 && (fewest == nil || len(pods) < len(fewest)) {
			fewest = pods
		}
	}
	if fewest == nil {
		return ""
	}
	var names []string
	for _, p := range fewest {
		names = append(names, p.Name)
	}
	return fmt.Sprintf("it fits without %s, whose work then ends: kubectl delete pod %s --namespace %s", List(names), strings.Join(names, " "), e.Namespace)
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
					values := f.Values(a.Devices, name)
					if seen[name] || len(values) == 0 {
						continue
					}
					seen[name] = true
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
