// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// patience is the time after which a claim that does not change counts as stuck. Ending a
// pod takes up to some minutes.
const patience = 10 * time.Minute

// ownClaims returns the claims with devices of the driver.
func (c *Cluster) ownClaims() []*resourceapi.ResourceClaim {
	return slices.DeleteFunc(slices.Clone(c.Claims), func(claim *resourceapi.ResourceClaim) bool {
		return len(fleet.Results(claim, c.Driver)) == 0
	})
}

func nameOf(claim *resourceapi.ResourceClaim) string {
	return "claim " + fleet.FullName(claim)
}

// checkClaims reports claims that keep devices for no pod.
func checkClaims(c *Cluster) []Finding {
	var findings []Finding
	claims := c.ownClaims()
	for _, claim := range claims {
		deleted := claim.DeletionTimestamp
		switch {
		case deleted != nil && c.Now.Sub(deleted.Time) > patience:
			findings = append(findings, c.notDeleted(claim))
		case deleted == nil && len(claim.Status.ReservedFor) == 0 && c.Now.Sub(allocated(claim)) > patience:
			findings = append(findings, newFinding("claim-unused", nameOf(claim),
				fmt.Sprintf("no pod uses it, and it got its devices %s ago", fleet.Age(allocated(claim), c.Now)), "other claims do not get its devices",
				"if this lasts, check that the kube-controller-manager runs, which takes devices back; or delete the claim: kubectl --namespace "+claim.Namespace+" delete resourceclaim "+claim.Name))
		}
	}
	return orOK(append(findings, c.outOfReach(claims)...), fleet.Number(len(claims), "claim")+" with devices, none stuck")
}

// allocated returns when a claim got its devices, or else when it was created.
func allocated(claim *resourceapi.ResourceClaim) time.Time {
	if since := claim.Status.Allocation.AllocationTimestamp; since != nil {
		return since.Time
	}
	return claim.CreationTimestamp.Time
}

// notDeleted returns the finding about a claim that was deleted and is still there. A claim waits
// for its pods, and then for its finalizers.
func (c *Cluster) notDeleted(claim *resourceapi.ResourceClaim) Finding {
	found := fmt.Sprintf("its deletion began at %s, and it has the finalizers %s", claim.DeletionTimestamp.UTC().Format(time.RFC3339), strings.Join(claim.Finalizers, ", "))
	users := slices.DeleteFunc(fleet.Consumers(claim, c.Pods), fleet.Ends)
	if c.Unread[Pods] == "" && len(users) > 0 {
		return newFinding("claim-deleted-in-use", nameOf(claim), found+", and is used by pod "+list(fleet.Each(users, (*corev1.Pod).GetName)),
			"it goes when its pods have ended, and no other pod can use it", "end the pods; if the deletion was a mistake, they can run on until then")
	}
	return newFinding("claim-not-deleted", nameOf(claim), found, "its devices stay allocated",
		"check that the kube-controller-manager runs, which removes the allocation, and the programs that other finalizers name. If it runs, make it look again by a change of the claim: kubectl annotate --overwrite resourceclaim "+
			claim.Name+" --namespace "+claim.Namespace+" checked="+c.Now.UTC().Format("20060102T150405")+". Remove no finalizer: the devices may be in use")
}

// outOfReach returns findings about claims whose devices no agent can release.
func (c *Cluster) outOfReach(claims []*resourceapi.ResourceClaim) []Finding {
	if c.Unread[Nodes] != "" {
		return nil
	}
	byNode := map[string][]string{}
	for _, claim := range claims {
		for _, result := range fleet.Results(claim, c.Driver) {
			// A node's pool has the node's name.
			if name := fleet.FullName(claim); !slices.Contains(byNode[result.Pool], name) {
				byNode[result.Pool] = append(byNode[result.Pool], name)
			}
		}
	}
	var findings []Finding
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		names := byNode[node]
		switch exists := c.hasNode(node); {
		case !exists:
			findings = append(findings, newFinding("claim-of-missing-node", onNode(node),
				fmt.Sprintf("it does not exist, and %s of it: %s", fleet.NumberVerb(len(names), "claim", "has devices", "have devices"), list(names)),
				"their pods do not run, and pods that use one of the claims stay Pending",
				"delete the pods that use the claims; the kube-controller-manager then takes the devices back. A claim that pods do not own is deleted with kubectl delete resourceclaim"))
		case c.Unread[DriverPods] == "" && !c.hasAgent(node) && c.nvidiaDriver(node) == nil:
			findings = append(findings, newFinding("claims-without-agent", onNode(node),
				fmt.Sprintf("it has no agent, and %s of it: %s", fleet.NumberVerb(len(names), "claim", "has devices", "have devices"), list(names)),
				"pods that end stay in Terminating, because nothing releases their devices",
				"let an agent run on the node until the claims have ended: the node needs one of the labels in nodes.withAnyLabel of the chart and none in nodes.withoutLabels"))
		}
	}
	return findings
}

func (c *Cluster) hasNode(name string) bool { return c.nodeOf(name) != nil }

// nodeOf returns a node by its name; nil if it does not exist or is not known.
func (c *Cluster) nodeOf(name string) *corev1.Node {
	return fleet.First(c.Nodes, func(n *corev1.Node) bool { return n.Name == name })
}

func (c *Cluster) hasAgent(node string) bool { return c.agentOn(node) != nil }

// agentOn returns the agent's pod on a node, or nil.
func (c *Cluster) agentOn(node string) *corev1.Pod {
	return fleet.First(c.Agents, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

// usersReasons are the reasons of refusals that the user of a claim can end. The others are of the
// node; docs/user/events.md#event-texts has all of them.
var usersReasons = []string{"Invalid", "NotSupported", "NoCapacityLeft"}

// checkPrepared reports devices that the agent could not prepare. The condition and its
// reasons are in docs/user/events.md#event-texts.
func checkPrepared(c *Cluster) []Finding {
	var findings []Finding
	prepared := 0
	for _, claim := range c.ownClaims() {
		for _, device := range claim.Status.Devices {
			ready := meta.FindStatusCondition(device.Conditions, v1alpha1.ConditionReady)
			if device.Driver != c.Driver || ready == nil {
				continue
			}
			if ready.Status == metav1.ConditionTrue {
				prepared++
				continue
			}
			if ready.Reason == v1alpha1.ReasonUnprepareRetried {
				findings = append(findings, newFinding("claim-not-released", nameOf(claim), fmt.Sprintf("%s is not released: %s", device.Device, ready.Message),
					"its pod stays in Terminating, and no other claim gets the device", "end the process that has it open, if it is not needed"))
				continue
			}
			code := "claim-not-prepared"
			if slices.Contains(usersReasons, ready.Reason) {
				code = "claim-invalid"
			}
			findings = append(findings, newFinding(code, nameOf(claim), fmt.Sprintf("%s is not prepared: %s: %s", device.Device, ready.Reason, ready.Message),
				"no container of its pods starts", "the kubelet tries again, and the agent for a pod that runs; whether waiting helps depends on the reason"))
		}
	}
	return orOK(findings, fleet.Number(prepared, "device")+" prepared, none refused")
}

// checkConsumers reports claims of pods that do not end.
func checkConsumers(c *Cluster) []Finding {
	terminating := slices.DeleteFunc(slices.Clone(c.Pods), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || c.Now.Sub(pod.DeletionTimestamp.Time) <= patience
	})
	var findings []Finding
	claims := c.ownClaims()
	for _, claim := range claims {
		for _, pod := range fleet.Consumers(claim, terminating) {
			findings = append(findings, notTerminated(claim, pod))
		}
	}
	return orOK(findings, fleet.Number(len(claims), "claim")+" with devices, none of a pod that does not end")
}

// notTerminated returns the finding about a pod of a claim that does not end. If only finalizers
// keep a pod, the programs that its users have chosen must remove them.
func notTerminated(claim *resourceapi.ResourceClaim, pod *corev1.Pod) Finding {
	f := newFinding("pod-not-terminated", nameOf(claim), fmt.Sprintf("its pod %s is being deleted and had time to end until %s", pod.Name, pod.DeletionTimestamp.UTC().Format(time.RFC3339)),
		"its devices stay allocated", "run kubectl gpu explain "+pod.Name+" --namespace "+pod.Namespace+"; do not force the deletion while a process uses the GPU")
	if fleet.HasEnded(pod) && len(pod.Finalizers) > 0 {
		f.State = Warning
		f.Found += ", has ended, and has the finalizers " + list(pod.Finalizers)
		f.Remedy = "let the programs that the finalizers name end their work, or remove the finalizers if these programs are gone"
	}
	return f
}

// checkLimits reports claims with a container that computes without its memory limit. It also
// reports shares whose programs do not compute. The agent finds them, and writes a condition.
func checkLimits(c *Cluster) []Finding {
	var findings []Finding
	for _, claim := range c.ownClaims() {
		for _, device := range claim.Status.Devices {
			if device.Driver != c.Driver {
				continue
			}
			findings = append(findings, c.disturbances(claim, device)...)
			condition := meta.FindStatusCondition(device.Conditions, v1alpha1.ConditionMemoryUnlimited)
			if condition == nil {
				continue
			}
			switch found, facts := device.Device+": "+condition.Message, c.Facts[device.Pool].Value; {
			case condition.Status == metav1.ConditionTrue:
				findings = append(findings, newFinding("memory-unlimited", nameOf(claim), found, "the container can use the memory of other claims, whose programs then run out of memory",
					"use a RuntimeClass whose runtime runs CDI hooks, and create the pod again"))
			case condition.Status == metav1.ConditionUnknown && (facts == nil || !facts.Simulated):
				findings = append(findings, newFinding("memory-limit-not-checked", nameOf(claim), found, "a container may use the memory of other claims",
					"read the log of the agent of node "+device.Pool+", which has the reason"))
			}
		}
	}
	return orOK(findings, "no agent reports a container without its memory limit, or a share without its MPS daemon")
}

// disturbances returns the findings about the conditions of a share. Programs that were started
// after an interruption are well.
func (c *Cluster) disturbances(claim *resourceapi.ResourceClaim, device resourceapi.AllocatedDeviceStatus) (findings []Finding) {
	for _, condition := range device.Conditions {
		found, known := cause.Of(condition.Type, condition.Reason)
		if !known || condition.Status != metav1.ConditionTrue {
			continue
		}
		since := condition.LastTransitionTime.Time
		ran := func(pod *corev1.Pod) bool { return fleet.RanAt(pod, since) }
		if condition.Type == v1alpha1.ConditionShareInterrupted && c.Unread[Pods] == "" && !slices.ContainsFunc(fleet.Consumers(claim, c.Pods), ran) {
			continue
		}
		found = found.For(device.Pool, "", "")
		findings = append(findings, Finding{
			Object: nameOf(claim), Code: found.Code, State: Warning, Found: fmt.Sprintf("%s, %s: %s", device.Device, since.UTC().Format(time.RFC3339), found.Meaning),
			Meaning: found.Effect, Remedy: found.Admin,
		})
	}
	return findings
}
