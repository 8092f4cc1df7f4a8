// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// attempt is something to try.
type attempt struct {
	verb, resource, object string
	// allowed to these, and of course to the administrator; refused to all others.
	allowed []who
	// says is part of the refusal of agentA, who may write some objects of that
	// resource, so that it is refused for the right reason.
	says string
	try  func(ctx context.Context, as who) error
}

func TestEveryAccountHasTheRightsThatItNeedsAndNoMore(t *testing.T) {
	for _, a := range slices.Concat(sliceAttempts(), statusAttempts(), claimAttempts(), operatorAttempts(), eventAttempts(), otherAttempts()) {
		t.Run(strings.ReplaceAll(a.verb+" "+a.resource+": "+a.object, "/", "."), func(t *testing.T) {
			for _, one := range accounts() {
				err := a.try(t.Context(), one)
				if one == admin || slices.Contains(a.allowed, one) {
					if err != nil {
						t.Errorf("%s is refused: %v", one, err)
					}
					continue
				}
				if !refused(err) {
					t.Errorf("%s is not refused: %v", one, err)
					continue
				}
				if one == agentA && !strings.Contains(err.Error(), a.says) {
					t.Errorf("%s is refused with %q, want a reason that says %q", one, err, a.says)
				}
			}
		})
	}
}

// refused reports whether authorization or admission refused, and not another check:
// the strategy of a status refuses with a forbidden field.
func refused(err error) bool {
	return apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) && strings.Contains(err.Error(), "Forbidden") && strings.Contains(err.Error(), "permission")
}

// sliceAttempts: a node's agent publishes what its node has.
func sliceAttempts() []attempt {
	const (
		otherNode   = "may not write ResourceSlices of"
		wrongDriver = "may not write ResourceSlices of the driver " + otherDriver
		wrongPool   = "may not write ResourceSlices of the pool"
	)
	create := func(object string, allowed []who, says string, slice func() *resourceapi.ResourceSlice) attempt {
		return attempt{"create", "resourceslices", object, allowed, says, func(ctx context.Context, as who) error {
			return world.createSlice(ctx, as, slice())
		}}
	}
	named := func(verb string, try func(ctx context.Context, as who, name string) error, object, name string, allowed []who, says string) attempt {
		return attempt{verb, "resourceslices", object, allowed, says, func(ctx context.Context, as who) error { return try(ctx, as, name) }}
	}
	attempts := []attempt{
		create("of node A", []who{agentA}, otherNode, func() *resourceapi.ResourceSlice { return sliceOf(driver, world.nodeA, world.nodeA) }),
		create("of node B", []who{agentB}, otherNode, func() *resourceapi.ResourceSlice { return sliceOf(driver, nodeB, nodeB) }),
		create("of another driver", nil, wrongDriver, func() *resourceapi.ResourceSlice { return sliceOf(otherDriver, world.nodeA, world.nodeA) }),
		create("of node A in the pool of node B", nil, wrongPool, func() *resourceapi.ResourceSlice { return sliceOf(driver, world.nodeA, nodeB) }),
		create("of all nodes", nil, "may not write ResourceSlices of the whole cluster", func() *resourceapi.ResourceSlice {
			slice := sliceOf(driver, "", world.nodeA)
			slice.Spec.NodeName, slice.Spec.AllNodes = nil, ptr.To(true)
			return slice
		}),
		create("of each device's own nodes", nil, "may not write ResourceSlices of the whole cluster", func() *resourceapi.ResourceSlice {
			slice := sliceOf(driver, "", world.nodeA)
			slice.Spec.NodeName, slice.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
			slice.Spec.Devices[0].NodeName = ptr.To(world.nodeA)
			return slice
		}),
		{"deletecollection", "resourceslices", "of anybody", nil, "cannot deletecollection", func(ctx context.Context, as who) error {
			return world.clients[as].ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun()}, metav1.ListOptions{})
		}},
		{"get", "resourceslices", "of node A", []who{operator}, "cannot get", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().ResourceSlices().Get(ctx, "slice-a", metav1.GetOptions{})
			return err
		}},
		{"patch", "resourceslices", "of node A", nil, "cannot patch", func(ctx context.Context, as who) error { return world.patchSlice(ctx, as, "slice-a") }},
		{"list", "resourceslices", "of everybody", []who{viewer, operator, agentA, agentB, agentNowhere}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
			return err
		}},
	}
	for _, verb := range []struct {
		name string
		try  func(ctx context.Context, as who, name string) error
	}{
		{"update", func(ctx context.Context, as who, name string) error { return world.updateSlice(ctx, as, name) }},
		{"delete", func(ctx context.Context, as who, name string) error { return world.deleteSlice(ctx, as, name) }},
	} {
		attempts = append(attempts,
			named(verb.name, verb.try, "of node A", "slice-a", []who{agentA}, otherNode),
			named(verb.name, verb.try, "of node B", "slice-b", []who{agentB}, otherNode),
			named(verb.name, verb.try, "of another driver on node A", "slice-a-other", nil, wrongDriver),
		)
	}
	return attempts
}

// statusAttempts: a node's agent reports on devices of claims on its node.
func statusAttempts() []attempt {
	const notHere = "arbitrary-node:"
	status := func(object string, allowed []who, says string, try func(ctx context.Context, as who) error) attempt {
		return attempt{"patch", "resourceclaims/status", object, allowed, says, try}
	}
	report := func(claim, driver string) func(ctx context.Context, as who) error {
		return func(ctx context.Context, as who) error {
			return world.report(ctx, as, claim, driver, metav1.PatchOptions{DryRun: dryRun()})
		}
	}
	named := func(try func(ctx context.Context, as who, name string) error, name string) func(ctx context.Context, as who) error {
		return func(ctx context.Context, as who) error { return try(ctx, as, name) }
	}
	allocate := func(ctx context.Context, as who, name string) error { return world.allocate(ctx, as, name) }
	deallocate := func(ctx context.Context, as who, name string) error { return world.deallocate(ctx, as, name) }
	reserve := func(ctx context.Context, as who, name string) error { return world.reserve(ctx, as, name) }
	return []attempt{
		status("devices of a claim on node A", []who{agentA}, notHere, report("claim-a", driver)),
		status("devices of a claim on node B", []who{agentB}, notHere, report("claim-b", driver)),
		status("our devices of a claim on node A with another driver's", []who{agentA}, notHere, report("claim-a-both", driver)),
		status("devices of a claim of no node", nil, notHere, report("claim-anywhere", driver)),
		status("another driver's devices of a claim on node A", nil, notHere, func(ctx context.Context, as who) error {
			return world.changeStatus(ctx, as, "claim-a-both", metav1.PatchOptions{DryRun: dryRun()}, func(s *resourceapi.ResourceClaimStatus) { s.Devices = nil })
		}),
		status("allocation of a claim that has none", nil, "resourceclaims/binding", named(allocate, "claim-free")),
		status("allocation of a claim on node A", nil, "resourceclaims/binding", named(deallocate, "claim-a")),
		status("allocation of a claim on node B", nil, "resourceclaims/binding", named(deallocate, "claim-b")),
		status("consumers of a claim on node A", nil, "resourceclaims/binding", named(reserve, "claim-a")),
		{"update", "resourceclaims/status", "of a claim on node A", nil, "cannot update", func(ctx context.Context, as who) error {
			return world.updateStatus(ctx, as, "claim-a")
		}},
	}
}

// claimAttempts: the claims themselves are the users'.
func claimAttempts() []attempt {
	return []attempt{
		{"get", "resourceclaims", "of any namespace", []who{agentA, agentB, agentNowhere, operator}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().ResourceClaims(tenant).Get(ctx, "claim-b", metav1.GetOptions{})
			return err
		}},
		{"list", "resourceclaims", "of all namespaces", []who{viewer, operator}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"list", "resourceclaimtemplates", "of all namespaces", []who{viewer}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().ResourceClaimTemplates("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"patch", "resourceclaims", "on node A", nil, "", func(ctx context.Context, as who) error { return world.labelClaim(ctx, as, "claim-a") }},
		{"update", "resourceclaims", "on node A", nil, "", func(ctx context.Context, as who) error {
			claim, err := world.clients[admin].ResourceV1().ResourceClaims(tenant).Get(ctx, "claim-a", metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = world.clients[as].ResourceV1().ResourceClaims(tenant).Update(ctx, claim, metav1.UpdateOptions{DryRun: dryRun()})
			return err
		}},
		{"create", "resourceclaims", "for itself", nil, "", func(ctx context.Context, as who) error { return world.createClaim(ctx, as) }},
		{"delete", "resourceclaims", "on node A", nil, "", func(ctx context.Context, as who) error {
			return world.clients[as].ResourceV1().ResourceClaims(tenant).Delete(ctx, "claim-a", metav1.DeleteOptions{DryRun: dryRun()})
		}},
		{"create", "deviceclasses", "for everybody", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}}, metav1.CreateOptions{DryRun: dryRun()})
			return err
		}},
		{"patch", "deviceclasses", "of ours", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().DeviceClasses().Patch(ctx, "gpu.nvidia.com", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
			return err
		}},
		{"delete", "deviceclasses", "of ours", nil, "", func(ctx context.Context, as who) error {
			return world.clients[as].ResourceV1().DeviceClasses().Delete(ctx, "gpu.nvidia.com", metav1.DeleteOptions{DryRun: dryRun()})
		}},
	}
}

// eventAttempts: a node's agent reports GPUs that fail, in its own name.
func eventAttempts() []attempt {
	create := func(object string, allowed []who, says string, change func(*eventsv1.Event)) attempt {
		return attempt{"create", "events", object, allowed, says, func(ctx context.Context, as who) error {
			event := world.healthEvent(world.nodeA)
			change(event)
			return world.createEvent(ctx, as, event)
		}}
	}
	return []attempt{
		create("of node A on a pod", []who{agentA}, "may not create events of", func(*eventsv1.Event) {}),
		create("of node A on a claim", []who{agentA}, "may not create events of", func(e *eventsv1.Event) {
			e.Regarding.APIVersion, e.Regarding.Kind, e.Regarding.Name = "resource.k8s.io/v1", "ResourceClaim", "claim-a"
			e.Type, e.Reason = corev1.EventTypeNormal, v1alpha1.ReasonGPUHealthy
		}),
		create("of node A about a disturbed share", []who{agentA}, "may not create events of", func(e *eventsv1.Event) {
			e.Regarding.APIVersion, e.Regarding.Kind, e.Regarding.Name = "resource.k8s.io/v1", "ResourceClaim", "claim-a"
			e.Reason = v1alpha1.ConditionShareUnserved
		}),
		create("of node A about a share without its daemon", []who{agentA}, "may not create events of", func(e *eventsv1.Event) { e.Reason = v1alpha1.ConditionShareInterrupted }),
		create("of node A about a claim that waits", []who{agentA}, "may not create events of", func(e *eventsv1.Event) { e.Reason = v1alpha1.ReasonPrepareRetried }),
		create("of node B on a pod", []who{agentB}, "may not create events of "+nodeB, func(e *eventsv1.Event) { e.ReportingInstance = nodeB }),
		create("of another controller", nil, "may not create events of kubelet", func(e *eventsv1.Event) { e.ReportingController = "kubelet" }),
		create("on a secret", nil, "may not create events on a Secret", func(e *eventsv1.Event) { e.Regarding.Kind = "Secret" }),
		create("on a pod of another group", nil, "may not create events on a Pod", func(e *eventsv1.Event) { e.Regarding.APIVersion = "example.com/v1" }),
		create("with another reason", nil, "may not create events with the reason Evicted", func(e *eventsv1.Event) { e.Reason = "Evicted" }),
		{"create", "events", "of the core group", nil, "cannot create", func(ctx context.Context, as who) error { return world.createCoreEvent(ctx, as) }},
		{"patch", "events", "of node A", nil, "cannot patch", func(ctx context.Context, as who) error { return world.patchEvent(ctx, as) }},
		{"delete", "events", "of node A", nil, "cannot delete", func(ctx context.Context, as who) error { return world.deleteEvent(ctx, as) }},
		{"list", "events", "of a user's namespace", []who{viewer}, "cannot list", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Events(tenant).List(ctx, metav1.ListOptions{})
			return err
		}},
	}
}

// otherAttempts: what a stolen token would be used for.
func otherAttempts() []attempt {
	policies := func(as who) interface {
		Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	} {
		return world.clients[as].AdmissionregistrationV1().ValidatingAdmissionPolicies()
	}
	return []attempt{
		{"get", "nodes", "of any name", []who{agentA, agentB, agentNowhere, operator}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Nodes().Get(ctx, nodeB, metav1.GetOptions{})
			return err
		}},
		{"patch", "nodes", "label of node A", []who{operator}, "", func(ctx context.Context, as who) error { return world.labelNode(ctx, as, world.nodeA) }},
		{"patch", "nodes/status", "of node A", nil, "", func(ctx context.Context, as who) error { return world.labelNode(ctx, as, world.nodeA, "status") }},
		{"delete", "nodes", "node B", nil, "", func(ctx context.Context, as who) error {
			return world.clients[as].CoreV1().Nodes().Delete(ctx, nodeB, metav1.DeleteOptions{DryRun: dryRun()})
		}},
		{"get", "secrets", "of the driver's namespace", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Secrets(driverNamespace).Get(ctx, "secret", metav1.GetOptions{})
			return err
		}},
		{"get", "secrets", "of a user's namespace", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Secrets(tenant).Get(ctx, "secret", metav1.GetOptions{})
			return err
		}},
		{"list", "secrets", "of all namespaces", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"list", "pods", "of all namespaces", []who{viewer, operator}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"list", "poddisruptionbudgets", "of all namespaces", []who{viewer}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"list", "priorityclasses", "of the cluster", []who{viewer}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
			return err
		}},
		{"create", "pods", "in the driver's namespace", nil, "", func(ctx context.Context, as who) error { return world.createPod(ctx, as, driverNamespace) }},
		{"create", "pods", "in a user's namespace", nil, "", func(ctx context.Context, as who) error { return world.createPod(ctx, as, tenant) }},
		{"delete", "pods", "of the driver's namespace", nil, "", func(ctx context.Context, as who) error {
			return world.clients[as].CoreV1().Pods(driverNamespace).Delete(ctx, "agent-b", metav1.DeleteOptions{DryRun: dryRun()})
		}},
		{"create", "serviceaccounts/token", "of the agent", nil, "", func(ctx context.Context, as who) error { return world.createToken(ctx, as, agentAccount) }},
		{"create", "serviceaccounts/token", "of the viewers", []who{viewer}, "", func(ctx context.Context, as who) error { return world.createToken(ctx, as, viewerAccount) }},
		// The pod does not run; the API server reaches for it only if the user may.
		{"get", "pods/proxy", "of the driver's namespace", []who{viewer}, "", func(ctx context.Context, as who) error { return world.proxy(ctx, as, driverNamespace) }},
		{"get", "pods/proxy", "of a user's namespace", nil, "", func(ctx context.Context, as who) error { return world.proxy(ctx, as, tenant) }},
		{"create", "tokenreviews", "of a token", []who{agentA, agentB, agentNowhere}, "", func(ctx context.Context, as who) error { return world.review(ctx, as) }},
		{"create", "subjectaccessreviews", "of another user", nil, "", func(ctx context.Context, as who) error { return world.reviewAccess(ctx, as) }},
		{"impersonate", "users", "the scheduler", nil, "", func(ctx context.Context, as who) error {
			return world.actAs(ctx, as, "system:kube-scheduler")
		}},
		{"delete", "validatingadmissionpolicies", "that hold the agent", nil, "", func(ctx context.Context, as who) error {
			return policies(as).Delete(ctx, "gpu-dra-driver-own-slices", metav1.DeleteOptions{DryRun: dryRun()})
		}},
		{"patch", "clusterroles", "of the agent", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].RbacV1().ClusterRoles().Patch(ctx, "gpu-dra-driver-agent", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
			return err
		}},
		{"patch", "daemonsets", "of the driver", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].AppsV1().DaemonSets(driverNamespace).Patch(ctx, "gpu-dra-driver-agent", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
			return err
		}},
	}
}
