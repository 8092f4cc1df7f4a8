// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Two runs of a cordon write the same rules, and no two devices share one.
func TestNamesOfRulesAreValidAndOfOneDevice(t *testing.T) {
	long := strings.Repeat("n", 63) + "." + strings.Repeat("n", 63) + "." + strings.Repeat("n", 63) + "." + strings.Repeat("n", 40)
	names := map[string]string{}
	for _, of := range []Name{
		{"gpu.nvidia.com", "a", "gpu-1b-00"},
		{"gpu.nvidia.com", "a.b", "gpu-1b-00"},
		{"gpu.nvidia.com", long, "gpu-1b-00"},
		{"gpu.nvidia.com", long + "x", "gpu-1b-00"},
		{"gpu.example.com", "a", "gpu-1b-00"},
	} {
		for _, device := range []string{"gpu-1b-00", "gpu-1b-00-mig-1g-10gb-me-3"} {
			name := ruleName(prefix, of, device)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
			if other := names[name]; other != "" {
				t.Errorf("%s and %s have the same rule %s", of, other, name)
			}
			names[name] = of.String() + " " + device
		}
	}
}

func TestARuleSelectsOneDeviceAndIsFoundAgain(t *testing.T) {
	of := Name{"gpu.nvidia.com", "a", "gpu-1b-00"}
	target := Target{of, fleet.GPU{Name: "gpu-1b-00", Devices: []fleet.Device{
		{ID: fleet.DeviceID{Driver: of.Driver, Pool: "a", Device: "gpu-1b-00-mig-1g-10gb-0"}}, // held, and no longer published
	}}}
	c := NewCordon(target, nil, "fan")
	var selected []string
	for _, rule := range c.Create {
		s := rule.Spec.DeviceSelector
		selected = append(selected, *s.Driver+" "+*s.Pool+" "+*s.Device+" "+string(rule.Spec.Taint.Effect))
	}
	want := []string{
		"gpu.nvidia.com a gpu-1b-00 NoSchedule", "gpu.nvidia.com a gpu-1b-00-mig-1g-10gb-0 NoSchedule",
		"gpu.nvidia.com a gpu-1b-00-seat NoSchedule", "gpu.nvidia.com a gpu-1b-00-ts NoSchedule",
	}
	require.Same(t, "selected devices", want, selected)
	if found := Rules(c.Create, of); len(found) != 4 {
		t.Errorf("%d rules are found again", len(found))
	}
	for _, other := range []Name{{"gpu.nvidia.com", "b", "gpu-1b-00"}, {"gpu.nvidia.com", "a", "gpu-1c-00"}, {"gpu.example.com", "a", "gpu-1b-00"}} {
		if found := Rules(c.Create, other); len(found) > 0 {
			t.Errorf("%s: %d rules of another GPU are found", other, len(found))
		}
	}
	// A rule with a wider selector is not deleted.
	c.Create[0].Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: &of.Driver}
	if found := Rules(c.Create, of); len(found) != 3 {
		t.Errorf("%d rules are found, want 3", len(found))
	}
}

func TestSuggestionsBeginLikeTheWrongName(t *testing.T) {
	var known []string
	for _, letter := range "abcdefghijk" {
		known = append(known, "node-"+string(letter))
	}
	if got, want := suggest(": ", "node-k1", known), ": node-k, node-a, node-b, node-c, node-d, node-e, node-f, node-g and 3 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
