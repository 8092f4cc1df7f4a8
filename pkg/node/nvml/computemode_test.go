// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestComputeModesAreSetAndRead(t *testing.T) {
	sim, a := simulate(t, "dgx-h100"), secondH100
	l := nvml.New(sim.NVML())
	for _, mode := range []gpu.ComputeMode{gpu.ComputeModeExclusiveProcess, gpu.ComputeModeExclusiveProcess, gpu.ComputeModeProhibited, gpu.ComputeModeDefault} {
		must(t, l.SetComputeMode(t.Context(), a, mode))
		if got, err := l.ComputeMode(t.Context(), a); got != mode || err != nil {
			t.Errorf("it is %q, %v, want %s", got, err, mode)
		}
	}
}

func TestComputeModesThatCannotBeSet(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(*testing.T, *nvmlsim.Sim, *nvml.Library)
		mode  gpu.ComputeMode
		want  error
	}{
		"an unknown mode": {func(*testing.T, *nvmlsim.Sim, *nvml.Library) {}, "Shared", gpu.ErrInvalid},
		"no mode":         {func(*testing.T, *nvmlsim.Sim, *nvml.Library) {}, "", gpu.ErrInvalid},
		"of a GPU in MIG mode": {func(t *testing.T, _ *nvmlsim.Sim, l *nvml.Library) {
			must(t, l.SetMIGMode(t.Context(), secondH100, true))
		}, gpu.ComputeModeExclusiveProcess, gpu.ErrNotSupported},
		"without the rights": {func(t *testing.T, sim *nvmlsim.Sim, _ *nvml.Library) {
			fail(t, sim, "DeviceSetComputeMode", 1, gonvml.ERROR_NO_PERMISSION)
		}, gpu.ComputeModeExclusiveProcess, gpu.ErrPermission},
		"of a lost GPU": {func(t *testing.T, sim *nvmlsim.Sim, _ *nvml.Library) { must(t, sim.LoseGPU(1)) }, gpu.ComputeModeExclusiveProcess, gpu.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulate(t, "dgx-h100")
			l := nvml.New(sim.NVML())
			snapshot(t, l)
			tc.given(t, sim, l)
			require.Error(t, "SetComputeMode", l.SetComputeMode(t.Context(), secondH100, tc.mode), tc.want)
		})
	}
}

func TestAComputeModeThatIsNotReported(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	fail(t, sim, "DeviceGetComputeMode", 1, gonvml.ERROR_NOT_SUPPORTED)
	_, err := nvml.New(sim.NVML()).ComputeMode(t.Context(), secondH100)
	require.Error(t, "ComputeMode", err, gpu.ErrNotSupported)
}
