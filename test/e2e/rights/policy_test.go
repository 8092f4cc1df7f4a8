// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The API server's version and feature gates decide whether RBAC distinguishes the
// parts of a claim's status. Here RBAC allows everything, and the policies alone
// hold the agent to its own.
func TestThePoliciesAloneHoldTheAgentToItsOwn(t *testing.T) {
	change := func(claim string, change func(*resourceapi.ResourceClaimStatus)) func(context.Context) error {
		return func(ctx context.Context) error {
			return world.changeStatus(ctx, almightyA, claim, metav1.PatchOptions{DryRun: dryRun()}, change)
		}
	}
	report := func(claim string) func(context.Context) error {
		return func(ctx context.Context) error {
			return world.report(ctx, almightyA, claim, driver, metav1.PatchOptions{DryRun: dryRun()})
		}
	}
	const notHere = "may not write the status of a claim that is not allocated to its node"
	for name, tc := range map[string]struct {
		try func(context.Context) error
		// says is part of the refusal; empty if it is allowed.
		says string
	}{
		"report on a claim of its node":          {report("claim-a"), ""},
		"report next to another driver":          {report("claim-a-both"), ""},
		"report again":                           {change("claim-a", func(*resourceapi.ResourceClaimStatus) {}), ""},
		"update a report":                        {func(ctx context.Context) error { return world.updateStatus(ctx, almightyA, "claim-a") }, ""},
		"report on a claim of another node":      {report("claim-b"), notHere},
		"update a claim of another node":         {func(ctx context.Context) error { return world.updateStatus(ctx, almightyA, "claim-b") }, notHere},
		"report on a claim of every node":        {report("claim-anywhere"), notHere},
		"take the report of another driver away": {change("claim-a-both", func(s *resourceapi.ResourceClaimStatus) { s.Devices = nil }), "status.devices of other drivers"},
		"change the report of another driver": {change("claim-a-both", func(s *resourceapi.ResourceClaimStatus) {
			s.Devices[0].NetworkData = &resourceapi.NetworkDeviceData{InterfaceName: "eth9"}
		}), "status.devices of other drivers"},
		"take the devices of a claim of its node away":     {func(ctx context.Context) error { return world.deallocate(ctx, almightyA, "claim-a") }, "may not change status.allocation"},
		"take the devices of a claim of another node away": {func(ctx context.Context) error { return world.deallocate(ctx, almightyA, "claim-b") }, "may not change status.allocation"},
		"give devices to a claim":                          {func(ctx context.Context) error { return world.allocate(ctx, almightyA, "claim-free") }, "may not change status.allocation"},
		"reserve a claim of its node":                      {func(ctx context.Context) error { return world.reserve(ctx, almightyA, "claim-a") }, "may not change status.reservedFor"},
	} {
		t.Run(name, func(t *testing.T) {
			wantAnswer(t, tc.try(t.Context()), "own-claims", tc.says)
		})
	}
	t.Run("without a node, nothing", func(t *testing.T) {
		_, err := world.clients[almightyNowhere].ResourceV1().ResourceClaims(tenant).Patch(t.Context(), "claim-a", types.MergePatchType,
			[]byte(`{"status":{"devices":[]}}`), metav1.PatchOptions{DryRun: dryRun()}, "status")
		if !refused(err) || !strings.Contains(err.Error(), "not bound to a node") {
			t.Errorf("the answer is %v", err)
		}
	})
	t.Run("others are not looked at", func(t *testing.T) {
		if err := world.deallocate(t.Context(), admin, "claim-b"); err != nil {
			t.Error(err)
		}
	})
}

// RBAC allows an agent to create events only. The policy alone also holds one that may write
// all events.
func TestThePolicyOfEventsAloneHoldsTheAgentToItsOwn(t *testing.T) {
	event := func(as who, change func(*eventsv1.Event)) func(context.Context) error {
		return func(ctx context.Context) error {
			e := world.healthEvent(world.nodeA)
			change(e)
			return world.createEvent(ctx, as, e)
		}
	}
	for name, tc := range map[string]struct {
		try func(context.Context) error
		// says is part of the refusal; empty if it is allowed.
		says string
	}{
		"on a pod":                 {event(almightyA, func(*eventsv1.Event) {}), ""},
		"of another node":          {event(almightyA, func(e *eventsv1.Event) { e.ReportingInstance = nodeB }), "may not create events of " + nodeB},
		"of another controller":    {event(almightyA, func(e *eventsv1.Event) { e.ReportingController = "kubelet" }), "may not create events of kubelet"},
		"on a node":                {event(almightyA, func(e *eventsv1.Event) { e.Regarding.Kind = "Node" }), "may not create events on a Node"},
		"with another reason":      {event(almightyA, func(e *eventsv1.Event) { e.Reason = "Killing" }), "the reason Killing"},
		"of the core group":        {func(ctx context.Context) error { return world.createCoreEvent(ctx, almightyA) }, "own-events"},
		"changed":                  {func(ctx context.Context) error { return world.patchEvent(ctx, almightyA) }, "may not change or delete events"},
		"deleted":                  {func(ctx context.Context) error { return world.deleteEvent(ctx, almightyA) }, "may not change or delete events"},
		"of an agent without node": {event(almightyNowhere, func(*eventsv1.Event) {}), "not bound to a node"},
		"of an administrator":      {event(admin, func(e *eventsv1.Event) { e.ReportingController = "kubelet" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			wantAnswer(t, tc.try(t.Context()), "own-events", tc.says)
		})
	}
}

// wantAnswer fails unless the policy has refused with a reason that says the text. An empty
// text means that the attempt is allowed.
func wantAnswer(t *testing.T, err error, policy, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("refused: %v", err)
	case says != "" && (!refused(err) || !strings.Contains(err.Error(), policy) || !strings.Contains(err.Error(), says)):
		t.Errorf("the answer is %v, want a refusal by the policy %s that says %q", err, policy, says)
	}
}
