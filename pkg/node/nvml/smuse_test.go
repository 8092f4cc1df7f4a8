// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"testing"
	"time"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestSMUseOfProcesses(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	gpus := snapshot(t, l).GPUs
	must(t, sim.AddProcess(0, nvmlsim.Process{PID: 42, SMPercent: 30}))
	must(t, sim.AddProcess(0, nvmlsim.Process{PID: 43}))
	for i, want := range []map[int]float64{{42: .3}, nil} {
		got, err := l.SMUse(t.Context(), gpus[i].Address, time.Now().Add(-time.Minute))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("GPU %d: %v (-want +got):\n%s", i, err, diff)
		}
	}
	if got, err := l.SMUse(t.Context(), gpus[0].Address, time.Now().Add(time.Minute)); err != nil || len(got) > 0 {
		t.Errorf("samples of the future: %v, %v; want none", got, err)
	}
	must(t, l.SetMIGMode(t.Context(), gpus[1].Address, true))
	_, err := l.SMUse(t.Context(), gpus[1].Address, time.Time{})
	require.Error(t, "in MIG mode", err, gpu.ErrNotSupported)
}

// sampling is a library whose GPUs have these samples.
type sampling struct {
	vendor.Interface
	samples []vendor.ProcessUtilizationSample
	ret     vendor.Return
}

func (s sampling) DeviceGetHandleByPciBusId(id string) (vendor.Device, vendor.Return) { //nolint:revive // the name is go-nvml's
	device, ret := s.Interface.DeviceGetHandleByPciBusId(id)
	return samplingDevice{device, s}, ret
}

type samplingDevice struct {
	vendor.Device
	of sampling
}

func (d samplingDevice) GetProcessUtilization(uint64) ([]vendor.ProcessUtilizationSample, vendor.Return) {
	return d.of.samples, d.of.ret
}

func TestSMUseIsTheNewestValidSample(t *testing.T) {
	samples := []vendor.ProcessUtilizationSample{
		{Pid: 7, TimeStamp: 2, SmUtil: 20}, {Pid: 7, TimeStamp: 1, SmUtil: 10},
		{Pid: 8, TimeStamp: 1, SmUtil: 2147483632}, {Pid: 9, TimeStamp: 1, SmUtil: 100},
	}
	for name, c := range map[string]struct {
		samples []vendor.ProcessUtilizationSample
		ret     vendor.Return
		want    map[int]float64
		err     error
	}{
		"several of a process":             {samples, vendor.SUCCESS, map[int]float64{7: .2, 9: 1}, nil},
		"none, as the driver reports it":   {nil, vendor.ERROR_NOT_FOUND, nil, nil},
		"none, as go-nvml reports it":      {nil, vendor.ERROR_INSUFFICIENT_SIZE, nil, nil},
		"more than when they were counted": {samples, vendor.ERROR_INSUFFICIENT_SIZE, nil, gpu.ErrInUse},
		"a GPU that is lost":               {nil, vendor.ERROR_GPU_IS_LOST, nil, gpu.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			l := nvml.New(sampling{simulate(t, "t4").NVML(), c.samples, c.ret})
			got, err := l.SMUse(t.Context(), snapshot(t, l).GPUs[0].Address, time.Time{})
			if diff := cmp.Diff(c.want, got); !errors.Is(err, c.err) || diff != "" {
				t.Errorf("error %v, want %v (-want +got):\n%s", err, c.err, diff)
			}
		})
	}
}
