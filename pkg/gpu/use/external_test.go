// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestCheckNamesThePodOfAnExternalAllocation(t *testing.T) {
	half := gpu.Profile{Slices: 3, MemoryGB: 40}
	all := gpu.Profile{Slices: 7, MemoryGB: 80}
	g := gpu.GPU{
		Address: gpu.PCIAddress{Bus: 0x1b}, UUID: "GPU-1", Minor: 4,
		MIG: gpu.MIG{
			Profiles: []gpu.ProfileInfo{
				{Profile: half, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
				{Profile: all, Placements: []gpu.Placement{{Start: 0, Size: 8}}},
			},
			Partitions: []gpu.Partition{
				{Profile: half, Placement: gpu.Placement{Start: 0, Size: 4}, UUID: "MIG-1"},
				{Profile: half, Placement: gpu.Placement{Start: 4, Size: 4}, UUID: "MIG-2"},
			},
		},
	}
	const whole, slots, low, high, every = "gpu-1b-00", "gpu-1b-00-ts", "gpu-1b-00-mig-3g-40gb-0", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-mig-7g-80gb-0"
	// unknown has a profile that the GPU does not list, and so an unknown place.
	const unknown = "gpu-1b-00-mig-1g-10gb-0"
	for _, c := range []struct {
		name        string
		allocations []gpu.ExternalAllocation
		// want maps each device that must not be allocated to the pod that has it.
		want map[string]string
	}{
		{"nothing", nil, nil},
		{"another GPU", []gpu.ExternalAllocation{{Device: "GPU-2", Pod: "a/b"}, {Device: "nvidia1", Pod: "a/b"}}, nil},
		{"the GPU", []gpu.ExternalAllocation{{Device: "GPU-1", Pod: "a/b"}}, map[string]string{whole: "a/b", slots: "a/b", low: "a/b", high: "a/b", every: "a/b", unknown: "a/b"}},
		{"the GPU by its minor number", []gpu.ExternalAllocation{{Device: "nvidia4", Pod: "a/b"}}, map[string]string{whole: "a/b", slots: "a/b", low: "a/b", high: "a/b", every: "a/b", unknown: "a/b"}},
		{"a MIG device", []gpu.ExternalAllocation{{Device: "MIG-2", Pod: "a/b"}}, map[string]string{whole: "a/b", slots: "a/b", high: "a/b", every: "a/b", unknown: "a/b"}},
		{"one that several share", []gpu.ExternalAllocation{{Device: "MIG-2", Pod: "a/b"}, {Device: "MIG-2", Pod: "a/c"}}, map[string]string{whole: "a/b", slots: "a/b", high: "a/b", every: "a/b", unknown: "a/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			allocated := use.GPU{GPU: g, Conditions: use.Conditions{External: c.allocations}}
			for _, device := range []string{whole, slots, low, high, every, unknown} {
				name, err := kind.Parse(device)
				require.NoError(t, err)
				got := ""
				for _, p := range use.Check(allocated, false, name, use.Alone) {
					got += p.Pod
				}
				if got != c.want[device] {
					t.Errorf("%s is allocated to %q, want %q", device, got, c.want[device])
				}
			}
		})
	}
}
