// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Users delete the rules that explain names. Rules with the same taint for other devices must stay.
func TestTheRulesOfATaintConcernTheDevice(t *testing.T) {
	named := func(name, pool, device string) *resourceapi.DeviceTaintRule {
		rule := taintRule(pool, device)
		rule.Name = name
		return rule
	}
	all, none := named("all", "", ""), named("none", "", "")
	all.Spec.DeviceSelector, none.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{}, nil
	another := named("another-taint", "a", "gpu-1b-00")
	another.Spec.Taint.Value = "fan"
	rules := []*resourceapi.DeviceTaintRule{
		named("this", "a", "gpu-1b-00"), named("another-device", "a", "gpu-43-00"), named("another-node", "b", "gpu-1b-00"), another, all, none,
	}
	got := fleet.RulesOf(rules, fleet.DeviceID{Driver: "gpu.nvidia.com", Pool: "a", Device: "gpu-1b-00"}, rules[0].Spec.Taint)
	if diff := cmp.Diff([]string{"all", "this"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
