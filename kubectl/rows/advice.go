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

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// addNothingPublished adds that there is no device to choose from: no change of the claim helps.
func (e *explaining) addNothingPublished() {
	e.Causes = append(e.Causes, "no node publishes devices")
	e.advise("the administrator finds the reason: kubectl gpu doctor")
}

// addRoom adds that the end of other pods lets the pod run, if that is proven.
func (e *explaining) addRoom(ctx context.Context, pod *corev1.Pod, nearest fleet.Verdict, claims []*resourceapi.ResourceClaim) error {
	if pod == nil || !e.BudgetsRead || len(nearest.Missing) == 0 || nearest.Missing[0] != fleet.ConditionHolders {
		return nil
	}
	rules := fleet.RoomRules{Budgets: e.Budgets}
	if e.cluster.noRoom(pod, rules, claims) != "" {
		return nil
	}
	found, err := e.search.Room(ctx, pod, rules, claims...)
	if len(found.Pods) > 0 {
		e.advise(fmt.Sprintf("kubectl gpu room %s --namespace %s shows %s whose end lets it run", pod.Name, pod.Namespace, fleet.Number(len(found.Pods), "pod")))
	}
	return err
}

// addMiss adds why claims fit on no node, by the nearest miss, and the remedy.
func (e *explaining) addMiss(verdicts []fleet.Verdict, checks []fleet.RequestCheck, open []*resourceapi.ResourceClaim) {
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
	_, missing := e.cluster.Missing(nearest)
	e.Causes = append(e.Causes, fmt.Sprintf("nearest to fit is node %s: %s", nearest.Node, missing))
	e.addOtherDrivers(checks)
	switch {
	case errors.Is(nearest.Problem, gpu.ErrNotReady):
		e.advise("wait until the agent of the node has published its devices")
	case errors.Is(nearest.Problem, fleet.ErrPoolRefused):
		e.advise("have the driver that the reason names publish its devices again, by a restart of its pod on the node: its ResourceSlices contradict each other")
	case nearest.Problem != nil:
		e.advise("write the claim in another shape, or mend its selectors: " + gpu.Page("docs/user/shapes.md#claims-that-the-scheduler-answers-quickly"))
	case nearest.Missing == nil:
		e.advise("request fewer devices: no node has so many")
	default:
		e.addCondition(nearest, checks, open)
	}
}

// addCondition adds the remedy of the first condition that the nearest node does not meet. It adds
// the reasons of devices, too.
func (e *explaining) addCondition(nearest fleet.Verdict, checks []fleet.RequestCheck, open []*resourceapi.ResourceClaim) {
	switch nearest.Missing[0] {
	case fleet.ConditionTaints:
		e.addTaintsOf(nearest.Node, checks)
	case fleet.ConditionSize:
		e.addReasons(nearest.Node, CodeTooSmall, 1)
		e.advise("request less: no device of the class has so much")
	case fleet.ConditionHolders:
		e.addReasons(nearest.Node, CodeInUse, mostEvents)
		e.advise("wait until enough of these claims end: nothing is preempted for devices, whatever the priority of the pod")
	case fleet.ConditionClass:
		e.advise(e.offerFor(open))
		e.advise("name another class: kubectl gpu free lists those with free devices")
	case fleet.ConditionConstraints:
		e.advise("request fewer devices, or drop the constraint: kubectl gpu topo " + nearest.Node + " shows which devices belong together")
	case fleet.ConditionSelectors:
		if readsProfile(open) {
			e.advise(e.offerFor(open))
		}
		e.advise("change the selector" + selectorValues(e.cluster.Fleet, checks))
	case fleet.ConditionPool:
	}
}

// addExcluded adds why no node admits the pod, for reasons apart from devices.
func (e *explaining) addExcluded(nearest fleet.Verdict) {
	e.Causes = append(e.Causes, "no node admits the pod, for reasons apart from devices")
	if slices.Contains(nearest.Excluded, fleet.Cordoned) {
		e.advise("if the node may be used again, its administrator ends the cordon: kubectl uncordon " + nearest.Node)
		return
	}
	for _, taint := range nearest.Taints {
		// The node controllers and the clouds' set these while something is wrong with a node.
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") || strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/") {
			e.advise(fmt.Sprintf("find why node %s has the taint %s: kubectl describe node %s", nearest.Node, taint.Key, nearest.Node))
			continue
		}
		e.advise(fmt.Sprintf("node %s is for pods that tolerate its taint: tolerations: [{key: %q, operator: Equal, value: %q, effect: %s}]", nearest.Node, taint.Key, taint.Value, taint.Effect))
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
			fleet.AddOnce(&e.Facts, fmt.Sprintf("the devices of request %s are of the driver %s, not of %s", check.Request, List(slices.Sorted(maps.Keys(drivers))), e.cluster.Driver))
		}
	}
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
				fleet.AddOnce(&reasons, text)
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
		e.Causes = append(e.Causes, e.sentence(h, ":"))
		if ends := h.remedy.Ends; ends != "" {
			e.advise(fmt.Sprintf("the taint of %s goes when %s; the administrator of node %s sees to it", List(h.Devices), ends, h.Node))
		} else {
			e.advise(h.remedy.User)
		}
		fleet.AddOnce(&e.Repairs, h.remedy.Admin)
	}
}

// selectorValues returns the values of the names in failing selectors, after a colon. It returns "" if
// devices have none.
func selectorValues(f *fleet.Fleet, checks []fleet.RequestCheck) string {
	var all []string
	for _, a := range checks {
		for _, d := range a.Devices {
			for _, i := range d.Selectors {
				for _, name := range fleet.NamesIn(a.Exactly.Selectors[i].CEL.Expression) {
					values := f.Values(a.Devices, name)
					var texts []string
					for _, value := range slices.Sorted(maps.Keys(values)) {
						texts = append(texts, fmt.Sprintf("%q (%s)", value, fleet.Number(values[value], "device")))
					}
					if texts != nil {
						fleet.AddOnce(&all, fmt.Sprintf("%s is %s", name, strings.Join(texts, ", ")))
					}
				}
			}
		}
	}
	if all == nil {
		return ""
	}
	return ": " + strings.Join(all, "; ")
}
