// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// DeviceHealth is a device that is not well, and the consequence, in JSON and YAML.
type DeviceHealth struct {
	Node    string   `json:"node"`
	Devices []string `json:"devices"`
	// Code is the stable name of the cause, such as "xid-79". It is the key of the taint if
	// the driver has not set it.
	Code    string       `json:"code"`
	Since   *metav1.Time `json:"since,omitempty"`
	Meaning string       `json:"meaning"`
	Effect  string       `json:"effect,omitempty"`

	failed bool
	remedy cause.Cause
}

// causeOf returns the cause of a taint, also of one that the driver has not set. failed is true
// if the GPU must be repaired.
func causeOf(taint resourceapi.DeviceTaint, id fleet.DeviceID) (c cause.Cause, failed bool) {
	c, ok := fleet.CauseOf(taint, id)
	if !ok {
		c = cause.Cause{
			Code: taint.Key, Meaning: "another party has set the taint " + fleet.TaintText(taint), Effect: "programs that have the device run on",
			User: "ask the administrator what the taint means: kubectl get devicetaintrules", Admin: "remove the taint when its reason has ended: kubectl get devicetaintrules",
		}
	}
	if taint.Effect == resourceapi.DeviceTaintEffectNoExecute {
		c.Effect = "the pod is evicted, unless its claim tolerates the taint"
	}
	return c, taint.Key == v1alpha1.TaintUnhealthy
}

// addHealth adds the causes for which the devices of allocated claims are not well. The pod is
// nil for a claim alone.
func (e *explaining) addHealth(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) {
	unread := e.cluster.Refused[doctor.Slices] != ""
	var unpublished, unknown []string
	nodes := map[string]bool{}
	reported := map[kubeletReport][]string{}
	for _, claim := range claims {
		for _, id := range e.cluster.devicesOf(claim) {
			nodes[id.Pool] = true
			health, message := kubeletHealth(pod, claim, id)
			d := e.cluster.Device(id)
			known := len(e.Health)
			switch {
			case d.Published != nil:
				e.addTaints(d)
			case !unread:
				unpublished = append(unpublished, id.Pool+"/"+id.Device)
			case health == "":
				unknown = append(unknown, id.Pool+"/"+id.Device)
			}
			e.addKubeletHealth(reported, id, health, message, len(e.Health) > known)
		}
		e.addDisturbances(pod, claim)
	}
	e.groupHealth()
	if len(e.Health) > 0 && e.Health[0].failed {
		e.Advice = nil // a program that has failed on such a GPU is not the cause
	}
	for _, h := range e.Health {
		e.addFault(pod, claims, h)
	}
	for _, report := range slices.SortedFunc(maps.Keys(reported), func(a, b kubeletReport) int { return cmp.Compare(a.text, b.text) }) {
		e.addUnknown(fmt.Sprintf("the kubelet reports %s as %s", List(reported[report]), report.text),
			"have the administrator check the agent of the node, which reports the health: kubectl gpu doctor "+report.node)
	}
	if len(unpublished) > 0 {
		e.addUnknown(fmt.Sprintf("%s: the node does not publish it now, so its health is not known", List(unpublished)),
			"delete the pod if its program has failed; the administrator checks the agent of the node: kubectl gpu doctor")
	}
	if len(unknown) > 0 {
		e.addUnknown(fmt.Sprintf("the health of %s is not known", List(unknown)), "")
	}
	if e.State == StateRunning || pod == nil {
		for _, node := range slices.Sorted(maps.Keys(nodes)) {
			e.addAgent(node)
		}
	}
}

// devicesOf returns the devices of this driver that a claim has. It omits devices that the
// claim only monitors.
func (c *Cluster) devicesOf(claim *resourceapi.ResourceClaim) []fleet.DeviceID {
	var all []fleet.DeviceID
	for _, r := range fleet.Results(claim, c.Driver) {
		if id := (fleet.DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}); !slices.Contains(all, id) && !(fleet.Holder{Result: r}).Admin() {
			all = append(all, id)
		}
	}
	return all
}

func (e *explaining) addTaints(d fleet.Device) {
	for _, taint := range d.Taints() {
		c, failed := causeOf(taint, d.ID)
		if rules := fleet.RulesOf(e.cluster.Objects.TaintRules, d.ID, taint); len(rules) > 0 && c.Code == taint.Key {
			c.Admin = "if the device is in order again: kubectl delete devicetaintrule " + strings.Join(rules, " ")
		}
		e.Health = append(e.Health, DeviceHealth{
			Node: d.ID.Pool, Devices: []string{d.ID.Device}, Code: c.Code, Since: taint.TimeAdded, Meaning: c.Meaning, Effect: c.Effect, failed: failed, remedy: c,
		})
	}
}

// addDisturbances adds the conditions for which the programs of a share do not compute. Programs that
// were started after an interruption are well.
func (e *explaining) addDisturbances(pod *corev1.Pod, claim *resourceapi.ResourceClaim) {
	for _, status := range claim.Status.Devices {
		for _, condition := range status.Conditions {
			c, known := cause.Of(condition.Type, condition.Reason)
			if status.Driver != e.cluster.Driver || !known || condition.Status != metav1.ConditionTrue ||
				condition.Type == v1alpha1.ConditionShareInterrupted && pod != nil && !fleet.RanAt(pod, condition.LastTransitionTime.Time) {
				continue
			}
			c = c.For(status.Pool, "", "")
			if e.Outcome == OutcomeWell {
				e.Outcome = OutcomeFault
				if condition.Type == v1alpha1.ConditionShareWaits {
					e.Outcome = OutcomeWaits
				}
			}
			e.Health = append(e.Health, DeviceHealth{
				Node: status.Pool, Devices: []string{status.Device}, Code: c.Code, Since: &condition.LastTransitionTime, Meaning: c.Meaning, Effect: c.Effect, remedy: c,
			})
		}
	}
}

// groupHealth joins the devices that one cause concerns, and puts faults first.
func (e *explaining) groupHealth() {
	var groups []DeviceHealth
	for _, h := range e.Health {
		i := slices.IndexFunc(groups, func(g DeviceHealth) bool { return g.Node == h.Node && g.Code == h.Code && g.Meaning == h.Meaning })
		if i < 0 {
			groups = append(groups, h)
		} else if !slices.Contains(groups[i].Devices, h.Devices[0]) {
			groups[i].Devices = append(groups[i].Devices, h.Devices[0])
		}
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(groups, func(a, b DeviceHealth) int { return cmp.Compare(rank[a.failed], rank[b.failed]) })
	e.Health = groups
}

// sentence returns the devices that are not well, and the reason, with words between them.
func (e *explaining) sentence(h DeviceHealth, between string) string {
	since := h.Code
	if h.Since != nil {
		since += ", for " + fleet.Age(h.Since.Time, e.Now)
	}
	return fmt.Sprintf("%s of node %s%s %s (%s)", List(h.Devices), h.Node, between, h.Meaning, since)
}

func (e *explaining) addFault(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, h DeviceHealth) {
	verb := ":"
	if h.failed {
		verb, e.Outcome = " has failed:", OutcomeFault
	}
	e.Causes = append(e.Causes, e.sentence(h, verb))
	if e.State == StateSucceeded || e.State == StateFailed {
		fleet.AddOnce(&e.Repairs, h.remedy.Admin)
		return
	}
	fleet.AddOnce(&e.Causes, "for the program: "+h.Effect)
	remedy := h.remedy.User
	if strings.Contains(remedy, "delete the pod") {
		remedy += e.deletion(pod, claims, h)
	}
	e.advise(remedy)
	fleet.AddOnce(&e.Repairs, h.remedy.Admin)
}

// deletion returns the command that deletes all pods of the claims on sick devices, after a colon; ""
// without pods. One pod that keeps a claim keeps its devices. Pods of other claims are well.
func (e *explaining) deletion(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, sick DeviceHealth) string {
	var pods []*corev1.Pod
	if pod != nil {
		pods = append(pods, pod)
	}
	isSick := func(id fleet.DeviceID) bool { return id.Pool == sick.Node && slices.Contains(sick.Devices, id.Device) }
	for _, claim := range claims {
		if !slices.ContainsFunc(e.cluster.devicesOf(claim), isSick) {
			continue
		}
		for _, user := range fleet.Consumers(claim, e.cluster.Objects.Pods) {
			if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == user.UID }) {
				pods = append(pods, user)
			}
		}
	}
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf(": kubectl delete pod %s --namespace %s", strings.Join(fleet.Each(pods, (*corev1.Pod).GetName), " "), pods[0].Namespace)
}

// kubeletHealth returns the health of a device in the status of a pod's containers. It is
// empty if the kubelet reports none.
func kubeletHealth(pod *corev1.Pod, claim *resourceapi.ResourceClaim, device fleet.DeviceID) (health corev1.ResourceHealthStatus, message string) {
	if pod == nil {
		return "", ""
	}
	entries := append(fleet.EntriesOf(pod, claim), claim.Name) // the name of a claim for extended resources
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, resource := range status.AllocatedResourcesStatus {
			name, ofClaim := strings.CutPrefix(string(resource.Name), "claim:")
			entry, request, _ := strings.Cut(name, "/")
			if !ofClaim || !slices.Contains(entries, entry) || !isRequested(claim, device, request) {
				continue
			}
			for _, r := range resource.Resources {
				if len(resource.Resources) > 1 && !isResource(string(r.ResourceID), device.Device) {
					continue
				}
				if health == "" || r.Health == corev1.ResourceHealthStatusUnhealthy {
					health, message = r.Health, ptr.Deref(r.Message, "")
				}
			}
		}
	}
	return health, message
}

// isRequested reports whether a claim has the device by a request; by any if the request is "".
func isRequested(claim *resourceapi.ResourceClaim, device fleet.DeviceID, request string) bool {
	return slices.ContainsFunc(fleet.Results(claim, device.Driver), func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Pool == device.Pool && r.Device == device.Device && (request == "" || resourceclaim.BaseRequestRef(r.Request) == request)
	})
}

// isResource reports whether the ID of a resource is of a device. A CDI ID has the claim before the device, and
// the share after it.
func isResource(id, device string) bool {
	id, _, _ = strings.Cut(id, "_")
	before, found := strings.CutSuffix(id, device)
	return found && (before == "" || strings.ContainsAny(before[len(before)-1:], "/-="))
}

// kubeletReport is a health that is not known, in the words of the kubelet.
type kubeletReport struct{ node, text string }

// addKubeletHealth adds a report of the kubelet that is not "Healthy". If the kubelet does not
// know the health, it adds the device to reported.
func (e *explaining) addKubeletHealth(reported map[kubeletReport][]string, id fleet.DeviceID, health corev1.ResourceHealthStatus, message string, explained bool) {
	if health == "" || health == corev1.ResourceHealthStatusHealthy {
		return
	}
	words := strings.TrimSuffix(string(health)+": "+message, ": ")
	text := fmt.Sprintf("the kubelet reports %s as %s", id.Device, words)
	switch {
	case explained:
		fleet.AddOnce(&e.Facts, text)
	case health == corev1.ResourceHealthStatusUnhealthy:
		e.Outcome = OutcomeFault
		fleet.AddOnce(&e.Causes, text)
		e.advise("delete the pod if its program has failed, so that its controller starts it on another GPU; the administrator finds the cause: kubectl gpu get " + id.Pool)
	default:
		report := kubeletReport{id.Pool, words}
		reported[report] = append(reported[report], id.Device)
	}
}

// addUnknown adds a reason for which the health of a device is not known.
func (e *explaining) addUnknown(text, advice string) {
	if e.Outcome == OutcomeWell {
		e.Outcome = OutcomeUnknown
	}
	fleet.AddOnce(&e.Causes, text)
	e.advise(advice)
}

// addAllocated adds the devices of a claim and the conditions that drivers report. A device
// with a fault was ready once: its condition Ready would mislead.
func (e *explaining) addAllocated(claim *resourceapi.ResourceClaim) {
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == e.cluster.Driver {
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s has %s of node %s", claim.Name, result.Device, result.Pool))
		} else {
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s has %s of pool %s of the driver %s, which prepares it", claim.Name, result.Device, result.Pool, result.Driver))
		}
	}
	for _, status := range claim.Status.Devices {
		sick := slices.ContainsFunc(e.Health, func(h DeviceHealth) bool {
			return h.Node == status.Pool && slices.Contains(h.Devices, status.Device)
		}) || e.Outcome == OutcomeFault || e.Outcome == OutcomeUnknown
		for _, condition := range status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && (condition.Status == metav1.ConditionTrue && sick || condition.Status == metav1.ConditionFalse && e.State == StateCreating) {
				continue
			}
			if slices.ContainsFunc(e.Health, func(h DeviceHealth) bool { return h.remedy.Key == condition.Type }) {
				continue // it is among the causes
			}
			e.Facts = append(e.Facts, fmt.Sprintf("%s: %s is %s: %s", status.Device, condition.Type, condition.Status, condition.Message))
		}
	}
}
