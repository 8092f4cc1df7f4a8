// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTheConflictsOfAHeldDeviceAreConditionsOfItsClaim(t *testing.T) {
	r, _ := newTestReporter(fake.NewClientset(agenttest.Allocated("one")), holding("one"))
	found := Findings{
		Foreign: []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}},
		Conflicts: map[kind.Name][]Conflict{
			kindtest.Name("gpu-1b-00"): {ConflictDevicePlugin, ConflictOtherDriver}, kindtest.Name("gpu-43-00"): {ConflictDevicePlugin},
		},
	}
	types := func() (all []string) {
		r.round(t, found)
		for _, condition := range r.status.wanted["uid-one"].devices[0].conditions() {
			all = append(all, condition.Type+"="+string(condition.Status)+" "+condition.Reason)
		}
		return all
	}
	want := []string{"Ready=True Prepared", "ForeignProcess=True NoClaim", "ExternallyAllocated=True DevicePlugin", "OtherDriver=True SameName"}
	require.Same(t, "conditions", want, types())
	written := r.status.wanted["uid-one"].devices[0]
	written.data = nil
	entry := resourceapi.AllocatedDeviceStatus{Driver: agenttest.Driver, Pool: "node", Device: "gpu-1b-00", Conditions: written.conditions()}
	entry.Conditions = append(entry.Conditions, metav1.Condition{Type: "example.com/Watched", Status: metav1.ConditionTrue})
	if !written.matches(entry, agenttest.Driver) {
		t.Error("a status that is up to date is written again")
	}
	for i, kind := range []string{v1alpha1.ConditionExternallyAllocated, v1alpha1.ConditionOtherDriver} {
		ended := written
		ended.more = append(written.more[:1:1], written.more[2-i])
		if ended.matches(entry, agenttest.Driver) {
			t.Errorf("the condition %s stays after the conflict has ended", kind)
		}
	}
	found = Findings{}
	require.Same(t, "conditions after the conflicts have ended", want[:1], types())
}

func TestForeignProcessesAreInTheConditionsOfTheClaim(t *testing.T) {
	r, _ := newTestReporter(fake.NewClientset(agenttest.Allocated("one"), agenttest.Allocated("two")), holding("one", "two"))
	r.round(t, Findings{Foreign: []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}}})
	status := r.status.wanted["uid-one"]
	if status == nil || len(status.devices[0].more) != 1 {
		t.Fatalf("the status of the claim is %+v, want a condition", status)
	}
	for _, want := range []string{"process 4711", "a process without a claim for the device computes on it", "the log of the agent of node node names its pod"} {
		if message := status.devices[0].more[0].message; !strings.Contains(message, want) {
			t.Errorf("message %q, want %q", message, want)
		}
	}
	if other := r.status.wanted["uid-two"]; other == nil || len(other.devices[0].more) != 0 {
		t.Errorf("the status of the other claim is %+v, want no condition", other)
	}
}

func TestContainersWithoutTheirLimitAreInTheConditionsOfTheClaim(t *testing.T) {
	check := func(change func(*claim.LimitCheck)) []claim.LimitCheck {
		c := claim.LimitCheck{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one", "uid-two"}}
		change(&c)
		return []claim.LimitCheck{c}
	}
	unlimited := []claim.Unlimited{{Claims: []types.UID{"uid-one"}, PID: 4711}}
	for name, c := range map[string]struct {
		checks   []claim.LimitCheck
		one, two metav1.ConditionStatus
	}{
		"all have their limit": {checks: check(func(*claim.LimitCheck) {})},
		"one without": {
			checks: check(func(c *claim.LimitCheck) { c.Unlimited = unlimited }), one: metav1.ConditionTrue,
		},
		"no list of processes": {
			checks: check(func(c *claim.LimitCheck) { c.Err = gpu.ErrTimeout }), one: metav1.ConditionUnknown, two: metav1.ConditionUnknown,
		},
		"one without, and another unknown": {
			checks: check(func(c *claim.LimitCheck) { c.Unlimited, c.Err = unlimited, gpu.ErrTimeout }), one: metav1.ConditionTrue, two: metav1.ConditionUnknown,
		},
		"no list of limits": {one: metav1.ConditionUnknown, two: metav1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			held := holding("one", "two", "whole")
			for i := range held.held[:2] {
				held.held[i].Devices[0].Terms.Limit = &share.Limit{Memory: 1 << 30, Containers: 1}
			}
			r, _ := newTestReporter(fake.NewClientset(agenttest.Allocated("one"), agenttest.Allocated("two"), agenttest.Allocated("whole")), held)
			r.round(t, Findings{Limits: c.checks})
			for uid, want := range map[types.UID]metav1.ConditionStatus{"uid-one": c.one, "uid-two": c.two, "uid-whole": ""} {
				var got metav1.ConditionStatus
				for _, of := range r.status.wanted[uid].devices[0].conditions() {
					if of.Type == v1alpha1.ConditionMemoryUnlimited {
						got = of.Status
						if named := strings.Contains(of.Message, "process 4711"); named != (got == metav1.ConditionTrue) {
							t.Errorf("the condition of %s says %q", uid, of.Message)
						}
					}
				}
				if got != want {
					t.Errorf("the condition of %s is %q, want %q", uid, got, want)
				}
			}
		})
	}
}
