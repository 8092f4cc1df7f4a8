// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"slices"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestPowerHasTheEnergyAndTheReasonForSlowClocks(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	first, err := l.Power(t.Context(), secondH100)
	if err != nil || first.Joules == nil || first.Clocks == nil || len(first.Clocks.Reasons) != 1 {
		t.Fatalf("idle: %+v, %v, want its energy and one reason", first, err)
	}
	must(t, sim.SlowDown(1, "HwThermalSlowdown"))
	// 70 watts are a joule in 15 ms.
	second, err := l.Power(t.Context(), secondH100)
	for err == nil && *second.Joules < *first.Joules+1 {
		second, err = l.Power(t.Context(), secondH100)
	}
	if err != nil || !slices.Contains(second.Clocks.Reasons, gpu.ClockHWThermal) {
		t.Errorf("hot: %+v, %v, want the reason %s", second, err, gpu.ClockHWThermal)
	}
	must(t, sim.LoseGPU(1))
	_, err = l.Power(t.Context(), secondH100)
	require.Error(t, "a GPU off the bus", err, gpu.ErrLost)
}

func TestPowerLacksWhatTheDriverDoesNotReport(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	fail(t, sim, "DeviceGetTotalEnergyConsumption", 1, gonvml.ERROR_NOT_SUPPORTED)
	got, err := l.Power(t.Context(), secondH100)
	if err != nil || got.Joules != nil || got.Clocks == nil {
		t.Errorf("without a counter of energy: %+v, %v, want the clocks", got, err)
	}
	must(t, sim.ClearFaults())
	fail(t, sim, "DeviceGetCurrentClocksEventReasons", 1, gonvml.ERROR_NOT_SUPPORTED)
	if got, err = l.Power(t.Context(), secondH100); err != nil || got.Joules == nil || got.Clocks != nil {
		t.Errorf("without reasons of clocks: %+v, %v, want the energy", got, err)
	}
}
