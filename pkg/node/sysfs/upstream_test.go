// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"path/filepath"
	"testing"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Kubernetes' helpers are what other drivers publish with, so a simulated node must hold for
// them too.
func TestUpstreamHelpersReadTheSysTree(t *testing.T) {
	for _, tc := range []struct {
		model   string
		address string
		root    string
		numa    int64
		near    []int64
	}{
		{"dgx-h100", "0000:1b:00.0", "pci0000:15", 0, []int64{0}},
		{"dgx-a100", "0000:bd:00.0", "pci0000:b0", 5, []int64{5, 4, 6, 7}},
		// The GPUs' own memory is farther than any CPU.
		{"gb200", "0018:01:00.0", "pci0018:00", 1, []int64{1}},
		{"dgx1-v100", "0000:8a:00.0", "pci0000:80", 1, []int64{1}},
	} {
		t.Run(tc.model, func(t *testing.T) {
			m, err := nvmlsim.LoadModel(tc.model)
			must(t, err)
			s, err := nvmlsim.Create(t.TempDir(), m)
			must(t, err)
			at := deviceattribute.WithFSFromRoot(filepath.Join(s.Root(), "sys"))
			root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(tc.address, at)
			must(t, err)
			if *root.Value.StringValue != tc.root {
				t.Errorf("PCIe root %s, want %s", *root.Value.StringValue, tc.root)
			}
			numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(tc.address, deviceattribute.ScalarAttribute, at)
			must(t, err)
			if *numa.Value.IntValue != tc.numa {
				t.Errorf("NUMA node %d, want %d", *numa.Value.IntValue, tc.numa)
			}
			near, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(tc.address, deviceattribute.ListAttribute, at)
			must(t, err)
			require.Same(t, "near NUMA nodes", tc.near, near.Value.IntValues)
		})
	}
}
