// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTimeSlicesAndResetsByNvidiaSMI(t *testing.T) {
	root := programtest.Node(t, t.TempDir(), "dgx-h100")
	sim, err := nvmlsim.Open(root)
	must(t, err)
	smi, reset := nvml.NewSMI(gpu.DriverRoot(root)), nvml.ResetWith(gpu.DriverRoot(root))
	first, second := gpu.PCIAddress{Bus: 0x1b}, gpu.PCIAddress{Bus: 0x43}
	want := func(address gpu.PCIAddress, slice gpu.TimeSlice) {
		t.Helper()
		if got, err := smi.TimeSlice(t.Context(), address); err != nil || got != slice {
			t.Errorf("got %q, %v; want %s", got, err, slice)
		}
	}
	want(second, gpu.TimeSliceDefault)
	must(t, smi.SetTimeSlice(t.Context(), second, gpu.TimeSliceLong))
	want(second, gpu.TimeSliceLong)
	want(first, gpu.TimeSliceDefault)
	if err := reset(t.Context(), second); err != nil {
		t.Error(err)
	}
	want(second, gpu.TimeSliceDefault)

	err = errors.Join(sim.LoseGPU(1), sim.AddProcess(0, nvmlsim.Process{PID: 7, MemoryBytes: 1 << 20}))
	must(t, err)
	require.Error(t, "a lost GPU", smi.SetTimeSlice(t.Context(), second, gpu.TimeSliceShort), gpu.ErrLost)
	_, err = smi.TimeSlice(t.Context(), gpu.PCIAddress{Bus: 0x44})
	require.Error(t, "no GPU", err, gpu.ErrNotFound)
	require.Error(t, "a reset of a busy GPU", reset(t.Context(), first), gpu.ErrInUse)
}
