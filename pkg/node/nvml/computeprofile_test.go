// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// NVIDIA's driver took the second profile of seven slices, with which no GPU instance of
// an A100 works.
func TestAPartitionHasThePlainComputeProfile(t *testing.T) {
	for _, tc := range []struct {
		name, profile string
		nvl           bool
		want          int
	}{
		{"seven slices of an A100", "7g.80gb", false, gonvml.COMPUTE_INSTANCE_PROFILE_7_SLICE},
		{"seven slices of a GPU that offers both", "7g.80gb", true, gonvml.COMPUTE_INSTANCE_PROFILE_7_SLICE},
		{"one slice, of which there are two as well", "1g.10gb", false, gonvml.COMPUTE_INSTANCE_PROFILE_1_SLICE},
		{"one slice with media extensions", "1g.10gb+me", false, gonvml.COMPUTE_INSTANCE_PROFILE_1_SLICE},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := nvmlsim.LoadModel("dgx-a100")
			must(t, err)
			m.GPUs = m.GPUs[:1]
			m.GPUs[0].MIGMode = true
			for name, kind := range m.Kinds {
				mig := *kind.MIG
				mig.NVLCompute = tc.nvl
				kind.MIG = &mig
				m.Kinds[name] = kind
			}
			sim := create(t, m)
			l, a := first(t, sim)
			_, err = l.CreatePartition(t.Context(), a, profile(t, tc.profile), 0)
			must(t, err)
			st, err := sim.State()
			must(t, err)
			if got := st.GPUs[0].Instances[0].Compute[0].Profile; got != tc.want {
				t.Errorf("the compute instance has NVML's profile %d, want %d", got, tc.want)
			}
			must(t, nvml.New(sim.NVML()).DestroyPartition(t.Context(), a, profile(t, tc.profile), 0))
		})
	}
}
