// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

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
