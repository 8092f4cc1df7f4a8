// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestGaugesOfAGPU(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	gpus := snapshot(t, l).GPUs
	must(t, sim.AddProcess(0, nvmlsim.Process{PID: 42, SMPercent: 30, MemoryBytes: 5 << 30}))
	must(t, sim.AddProcess(0, nvmlsim.Process{PID: 43, SMPercent: 25, MemoryBytes: 1 << 30}))
	must(t, l.SetMIGMode(t.Context(), gpus[2].Address, true))
	total := gpus[0].MemoryBytes
	for i, want := range []gpu.Gauges{
		{Utilization: new(.55), MemoryUsedBytes: new(uint64(6 << 30)), MemoryBytes: &total, Celsius: new(60.), Watts: new(400.)},
		{Utilization: new(0.), MemoryUsedBytes: new(uint64(0)), MemoryBytes: &total, Celsius: new(35.), Watts: new(70.)},
		{MemoryUsedBytes: new(uint64(0)), MemoryBytes: &total, Celsius: new(35.), Watts: new(70.)}, // MIG mode
	} {
		got, err := l.Gauges(t.Context(), gpus[i].Address)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("GPU %d: %v (-want +got):\n%s", i, err, diff)
		}
	}
}

var gaugeMethods = []string{"DeviceGetMemoryInfo_v2", "DeviceGetUtilizationRates", "DeviceGetTemperature", "DeviceGetPowerUsage"}

func TestGaugesWithoutWhatAGPULacks(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	for _, method := range gaugeMethods {
		fail(t, sim, method, 1, vendor.ERROR_NOT_SUPPORTED)
	}
	got, err := nvml.New(sim.NVML()).Gauges(t.Context(), secondH100)
	// Version 1 counts reserved memory as used.
	if err != nil || got.Utilization != nil || got.Celsius != nil || got.Watts != nil || got.MemoryUsedBytes == nil || *got.MemoryUsedBytes == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestALostGPUHasNoGauges(t *testing.T) {
	for _, method := range gaugeMethods {
		sim := simulate(t, "dgx-h100")
		fail(t, sim, method, 1, vendor.ERROR_GPU_IS_LOST)
		_, err := nvml.New(sim.NVML()).Gauges(t.Context(), secondH100)
		require.Error(t, method, err, gpu.ErrLost)
	}
}
