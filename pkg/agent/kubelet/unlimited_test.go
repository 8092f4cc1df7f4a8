// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestContainersWithoutTheirLimitAreCountedAndInTheConditionsOfTheClaim(t *testing.T) {
	check := func(change func(*claim.LimitCheck)) []claim.LimitCheck {
		c := claim.LimitCheck{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one", "uid-two"}}
		change(&c)
		return []claim.LimitCheck{c}
	}
	unlimited := []claim.Unlimited{{Claims: []types.UID{"uid-one"}, PID: 4711}}
	for name, c := range map[string]struct {
		checks []claim.LimitCheck
		err    error
		// count is -1 if there must be none.
		count    int
		one, two metav1.ConditionStatus
	}{
		"all have their limit": {checks: check(func(*claim.LimitCheck) {})},
		"one without": {
			checks: check(func(c *claim.LimitCheck) { c.Unlimited = unlimited }), count: 1, one: metav1.ConditionTrue,
		},
		"no list of processes": {
			checks: check(func(c *claim.LimitCheck) { c.Err = gpu.ErrTimeout }), count: -1, one: metav1.ConditionUnknown, two: metav1.ConditionUnknown,
		},
		"one without, and another unknown": {
			checks: check(func(c *claim.LimitCheck) { c.Unlimited, c.Err = unlimited, gpu.ErrTimeout }), count: -1, one: metav1.ConditionTrue, two: metav1.ConditionUnknown,
		},
		"no list of limits": {err: errors.New("no disk"), count: -1, one: metav1.ConditionUnknown, two: metav1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			held := holding("one", "two", "whole")
			for i := range held.held[:2] {
				held.held[i].Devices[0].Terms.Limit = &share.Limit{Memory: 1 << 30, Containers: 1}
			}
			held.limitChecks, held.limitsErr = c.checks, c.err
			p := newTestPlugin(fake.NewClientset(testNode(), allocated("one"), allocated("two"), allocated("whole")), held)
			p.Observer.UnlimitedContainers(map[string]int{"gpu-1b-00": 7}) // of the last round
			p.reconcile(t.Context())
			if got, found := observations(p.Observer)["unlimited gpu-1b-00"]; found != (c.count >= 0) || found && got != c.count {
				t.Errorf("gpu_dra_unlimited_containers is %v (found: %t), want %v", got, found, c.count)
			}
			for uid, want := range map[types.UID]metav1.ConditionStatus{"uid-one": c.one, "uid-two": c.two, "uid-whole": ""} {
				var got metav1.ConditionStatus
				for _, of := range p.status.wanted[uid].devices[0].conditions() {
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
