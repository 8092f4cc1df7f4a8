// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestProcesses(t *testing.T) {
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	address := snapshot(t, l).GPUs[1].Address
	must(t, sim.AddProcess(1, nvmlsim.Process{PID: 4711, MemoryBytes: 1 << 30}))
	must(t, sim.AddProcess(1, nvmlsim.Process{PID: 42, MemoryBytes: 2 << 30}))
	got, err := l.Processes(t.Context(), address)
	must(t, err)
	want := []gpu.Process{{PID: 42, MemoryBytes: 2 << 30}, {PID: 4711, MemoryBytes: 1 << 30}}
	require.Same(t, "processes", want, got)
	_, err = l.Processes(t.Context(), gpu.PCIAddress{Bus: 0xfe})
	require.Error(t, "processes on an unknown GPU", err, gpu.ErrNotFound)
}

func TestProcessesOfMIGDevicesAreListedWithTheirGPUInstance(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	address := snapshot(t, l).GPUs[0].Address
	must(t, l.SetMIGMode(t.Context(), address, true))
	profile, err := gpu.ParseProfile("1g.10gb")
	must(t, err)
	var want []gpu.Process
	for start := range 2 {
		made, err := l.CreatePartition(t.Context(), address, profile, start)
		must(t, err)
		must(t, sim.AddProcess(0, nvmlsim.Process{PID: 100 + start, Device: made.UUID}))
		want = append(want, gpu.Process{PID: 100 + start, GPUInstance: &made.GPUInstanceID})
	}
	got, err := l.Processes(t.Context(), address)
	must(t, err)
	require.Same(t, "processes", want, got)
}

// listing is a library whose GPUs have these processes.
type listing struct {
	vendor.Interface
	compute, mps, graphics []vendor.ProcessInfo
	mpsRet                 vendor.Return
}

func (l listing) DeviceGetHandleByPciBusId(id string) (vendor.Device, vendor.Return) { //nolint:revive // the name is go-nvml's
	device, ret := l.Interface.DeviceGetHandleByPciBusId(id)
	return listingDevice{device, l}, ret
}

type listingDevice struct {
	vendor.Device
	of listing
}

func (d listingDevice) GetComputeRunningProcesses() ([]vendor.ProcessInfo, vendor.Return) {
	return d.of.compute, vendor.SUCCESS
}

func (d listingDevice) GetMPSComputeRunningProcesses() ([]vendor.ProcessInfo, vendor.Return) {
	return d.of.mps, d.of.mpsRet
}

func (d listingDevice) GetGraphicsRunningProcesses() ([]vendor.ProcessInfo, vendor.Return) {
	return d.of.graphics, vendor.SUCCESS
}

func TestAProcessInSeveralListsIsListedOnce(t *testing.T) {
	const none = 0xFFFFFFFF
	info := func(pid uint32, memory uint64) vendor.ProcessInfo {
		return vendor.ProcessInfo{Pid: pid, UsedGpuMemory: memory, GpuInstanceId: none, ComputeInstanceId: none}
	}
	for name, c := range map[string]struct {
		ret  vendor.Return
		mps  []vendor.ProcessInfo
		want []gpu.Process
	}{
		"a GPU with MPS": {vendor.SUCCESS, []vendor.ProcessInfo{info(8, 4<<20)}, []gpu.Process{
			{PID: 5, Graphics: true}, {PID: 7}, {PID: 8, MemoryBytes: 4 << 20}, {PID: 9, MemoryBytes: 1 << 20},
		}},
		"a GPU without": {vendor.ERROR_NOT_SUPPORTED, nil, []gpu.Process{
			{PID: 5, Graphics: true}, {PID: 7}, {PID: 9, MemoryBytes: 1 << 20},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := nvml.New(listing{
				Interface: simulate(t, "t4").NVML(), mpsRet: c.ret, mps: c.mps,
				compute:  []vendor.ProcessInfo{info(9, 1<<20), info(7, ^uint64(0))},
				graphics: []vendor.ProcessInfo{info(9, 1<<20), info(5, 0)},
			})
			got, err := l.Processes(t.Context(), snapshot(t, l).GPUs[0].Address)
			must(t, err)
			require.Same(t, "processes", c.want, got)
		})
	}
}
