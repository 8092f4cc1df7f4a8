// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestExternalAllocationsAreTainted(t *testing.T) {
	static := slicing(cutting(catalog.MIGProfiles{}))
	static.MIG.Static = true
	made := first(t, 1, "dgx-h100")
	made.GPUs[0].MIG.Enabled = true
	half := gpu.Profile{Slices: 3, MemoryGB: 40}
	for i, start := range []int{0, 4} {
		made.GPUs[0].MIG.Partitions = append(made.GPUs[0].MIG.Partitions, gpu.Partition{
			Profile: half, Placement: gpu.Placement{Start: start, Size: 4}, UUID: []string{"MIG-0", "MIG-1"}[i], GPUInstanceID: 1 + i,
		})
	}
	for _, c := range []struct {
		name     string
		catalog  catalog.Inputs
		node     gpu.Node
		external string
		want     []string
	}{
		{"a GPU, and nothing of another", slicing(sharing()), first(t, 2, "dgx-h100"), "nvidia0", []string{"gpu-1b-00", "gpu-1b-00-ts"}},
		{"one of an administrator's MIG devices, and not the other", static, made, "MIG-1", []string{"gpu-1b-00", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-ts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conditions := catalog.Conditions{}
			for _, g := range c.node.GPUs {
				maps.Copy(conditions, catalog.Conditions{g.Address: {External: []gpu.ExternalAllocation{{Device: c.external, Pod: "team/old"}}}})
			}
			var got []string
			for _, device := range devices(t, c.catalog, c.node, conditions) {
				for _, taint := range device.Taints {
					if taint.Key == v1alpha1.TaintInUse && taint.Value == "device-plugin" {
						got = append(got, device.Name)
					}
				}
			}
			slices.Sort(got)
			require.Same(t, "tainted", c.want, got)
		})
	}
}

// The cluster counts the devices of a claim that it has forgotten as free.
func TestDevicesInUseThatTheClusterCountsAsFreeAreTainted(t *testing.T) {
	for name, c := range map[string]struct {
		used string
		want []string
	}{
		"a GPU, and nothing of another":        {"gpu-1b-00", []string{"gpu-1b-00", "gpu-1b-00-mig-3g-40gb-0", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-ts"}},
		"a MIG device, and not one next to it": {"gpu-1b-00-mig-3g-40gb-4", []string{"gpu-1b-00", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-ts"}},
		"time slices, and the GPU they are of": {"gpu-1b-00-ts", []string{"gpu-1b-00", "gpu-1b-00-mig-3g-40gb-0", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-ts"}},
	} {
		t.Run(name, func(t *testing.T) {
			used, err := kind.Parse(c.used)
			must(t, err)
			describe := slicing(cutting(catalog.MIGProfiles{Listed: []gpu.Profile{{Slices: 3, MemoryGB: 40}}}))
			describe.InUse = catalog.InUse{used: v1alpha1.InUseTaintUnneededClaim}
			var got []string
			for _, device := range devices(t, describe, first(t, 2, "dgx-h100"), nil) {
				for _, taint := range device.Taints {
					if taint.Key == v1alpha1.TaintInUse && taint.Value == "unneeded-claim" && taint.Effect == "NoSchedule" {
						got = append(got, device.Name)
					}
				}
			}
			slices.Sort(got)
			require.Same(t, "tainted", c.want, got)
		})
	}
}
