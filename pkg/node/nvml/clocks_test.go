// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestClocksHaveTheReasonsThatReduceThem(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	got, err := l.Clocks(t.Context(), secondH100)
	want := gpu.Clocks{SMMHz: 345, MaxSMMHz: 1980, Reasons: []gpu.ClockReason{gpu.ClockGPUIdle}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("idle: %v (-want +got):\n%s", err, diff)
	}
	fail(t, sim, "DeviceGetCurrentClocksEventReasons", 1, gonvml.ERROR_NOT_SUPPORTED)
	_, err = l.Clocks(t.Context(), secondH100)
	require.Error(t, "on a GPU without them", err, gpu.ErrNotSupported)
}
