// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// What the hardware refuses, the simulator refuses with the same code.
func TestNVMLRefuses(t *testing.T) {
	type node struct {
		sim *Sim
		lib nvml.Interface
	}
	oneG, threeG, sevenG := nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE
	createAt := func(t *testing.T, d nvml.Device, number int, start, size uint32) nvml.Return {
		_, ret := d.CreateGpuInstanceWithPlacement(profileInfo(t, d, number), &nvml.GpuInstancePlacement{Start: start, Size: size})
		return ret
	}
	process := func(t *testing.T, n node, p Process) {
		t.Helper()
		if err := n.sim.AddProcess(0, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		model string
		do    func(t *testing.T, n node) nvml.Return
		want  nvml.Return
	}{
		{"a call after the last shutdown", "t4", func(t *testing.T, n node) nvml.Return {
			d := gpuHandle(t, n.lib, 0)
			succeed(t, n.lib.Shutdown())
			_, ret := d.GetUUID()
			succeed(t, n.lib.Init())
			return ret
		}, nvml.ERROR_UNINITIALIZED},
		{"one shutdown too many", "t4", func(t *testing.T, n node) nvml.Return {
			succeed(t, n.lib.Shutdown())
			ret := n.lib.Shutdown()
			succeed(t, n.lib.Init())
			return ret
		}, nvml.ERROR_UNINITIALIZED},
		{"an index beyond the last GPU", "t4", func(t *testing.T, n node) nvml.Return {
			_, ret := n.lib.DeviceGetHandleByIndex(4)
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"an unknown UUID", "t4", func(t *testing.T, n node) nvml.Return {
			_, ret := n.lib.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
			return ret
		}, nvml.ERROR_NOT_FOUND},
		{"an unknown PCI address", "t4", func(t *testing.T, n node) nvml.Return {
			_, ret := n.lib.DeviceGetHandleByPciBusId("0000:ff:00.0")
			return ret
		}, nvml.ERROR_NOT_FOUND},
		{"a malformed PCI address", "t4", func(t *testing.T, n node) nvml.Return {
			_, ret := n.lib.DeviceGetHandleByPciBusId("here")
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"a lost GPU", "t4", func(t *testing.T, n node) nvml.Return {
			d := gpuHandle(t, n.lib, 1)
			if err := n.sim.LoseGPU(1); err != nil {
				t.Fatal(err)
			}
			_, ret := d.GetUUID()
			return ret
		}, nvml.ERROR_GPU_IS_LOST},
		{"the handle of a lost GPU", "t4", func(t *testing.T, n node) nvml.Return {
			if err := n.sim.LoseGPU(1); err != nil {
				t.Fatal(err)
			}
			_, ret := n.lib.DeviceGetHandleByIndex(1)
			return ret
		}, nvml.ERROR_GPU_IS_LOST},
		{"a driver that is not loaded", "t4", func(t *testing.T, n node) nvml.Return {
			if err := n.sim.UnloadDriver(); err != nil {
				t.Fatal(err)
			}
			return n.lib.Init()
		}, nvml.ERROR_DRIVER_NOT_LOADED},
		{"the attributes of a whole GPU", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).GetAttributes()
			return ret
		}, nvml.ERROR_NOT_SUPPORTED},
		{"NVLink on a GPU without", "l40s", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).GetNvLinkState(0)
			return ret
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a link beyond the last", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).GetNvLinkState(18)
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"the far end of a link that is down", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			if err := n.sim.LinkDown(0, 3); err != nil {
				t.Fatal(err)
			}
			_, ret := gpuHandle(t, n.lib, 0).GetNvLinkRemotePciInfo(3)
			return ret
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a compute mode that is none", "t4", func(t *testing.T, n node) nvml.Return {
			return gpuHandle(t, n.lib, 0).SetComputeMode(nvml.COMPUTEMODE_COUNT)
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"the compute mode of a GPU in MIG mode", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			return migOn(t, n.lib, 0).SetComputeMode(nvml.COMPUTEMODE_DEFAULT)
		}, nvml.ERROR_NOT_SUPPORTED},
		{"MIG mode on a GPU without MIG", "t4", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).SetMigMode(nvml.DEVICE_MIG_ENABLE)
			return ret
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a MIG mode that is none", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).SetMigMode(7)
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"MIG mode while a process computes", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			process(t, n, Process{PID: 1, MemoryBytes: 1 << 20})
			d := gpuHandle(t, n.lib, 0)
			activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
			if now, _, _ := d.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_DISABLE {
				t.Errorf("%v, and the mode is %d", ret, now)
			}
			return activation
		}, nvml.ERROR_IN_USE},
		{"MIG mode off while there are instances", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, oneG, 0, 1)
			_, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
			return ret
		}, nvml.ERROR_IN_USE},
		{"an instance without MIG mode", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			return createAt(t, gpuHandle(t, n.lib, 0), oneG, 0, 1)
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a profile that the GPU has not", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_6_SLICE)
			return ret
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a profile that NVML has not", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := gpuHandle(t, n.lib, 0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT)
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"a placement that the profile has not", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			return createAt(t, migOn(t, n.lib, 0), threeG, 2, 4)
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"a placement of another size", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			return createAt(t, migOn(t, n.lib, 0), threeG, 4, 3)
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"no placement", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			_, ret := d.CreateGpuInstanceWithPlacement(profileInfo(t, d, oneG), nil)
			return ret
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"the same place twice", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, oneG, 3, 1)
			return createAt(t, d, oneG, 3, 1)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a place that overlaps another", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, oneG, 3, 1)
			return createAt(t, d, threeG, 0, 4)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"the whole GPU with a partition", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, oneG, 6, 1)
			return createAt(t, d, sevenG, 0, 8)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a second +me", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0, 1)
			return createAt(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 1, 1)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a second +me of another size", "a30-bridge", func(t *testing.T, n node) nvml.Return {
			if _, ret := gpuHandle(t, n.lib, 0).SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
				return ret
			}
			if err := n.sim.ResetGPU(0); err != nil {
				t.Fatal(err)
			}
			d := gpuHandle(t, n.lib, 0)
			place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0, 1)
			return createAt(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1, 2, 2)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"an eighth compute slice", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			place(t, d, nvml.GPU_INSTANCE_PROFILE_4_SLICE, 0, 4)
			for start := range uint32(3) {
				place(t, d, oneG, 4+start, 1)
			}
			_, ret := d.CreateGpuInstance(profileInfo(t, d, oneG))
			return ret
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"destroying an instance with a compute instance", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			in := place(t, migOn(t, n.lib, 0), oneG, 0, 1)
			spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
			return in.Destroy()
		}, nvml.ERROR_IN_USE},
		{"destroying a compute instance that a process uses", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			ci := spanning(t, place(t, migOn(t, n.lib, 0), oneG, 0, 1), nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
			info := must[nvml.ComputeInstanceInfo](t, "info")(ci.GetInfo())
			process(t, n, Process{PID: 1, MemoryBytes: 1 << 20, Device: must[string](t, "UUID")(info.Device.GetUUID())})
			return ci.Destroy()
		}, nvml.ERROR_IN_USE},
		{"destroying an instance twice", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			in := place(t, migOn(t, n.lib, 0), oneG, 0, 1)
			succeed(t, in.Destroy())
			return in.Destroy()
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"an old handle of a place that is taken again", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			d := migOn(t, n.lib, 0)
			in := place(t, d, oneG, 0, 1)
			succeed(t, in.Destroy())
			place(t, d, oneG, 0, 1)
			return in.Destroy()
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"an instance that is not there", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := migOn(t, n.lib, 0).GetGpuInstanceById(9)
			return ret
		}, nvml.ERROR_NOT_FOUND},
		{"a MIG device that is not there", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			_, ret := migOn(t, n.lib, 0).GetMigDeviceHandleByIndex(0)
			return ret
		}, nvml.ERROR_NOT_FOUND},
		{"P2P between GPUs in MIG mode", "dgx-h100", func(t *testing.T, n node) nvml.Return {
			status := must[nvml.GpuP2PStatus](t, "P2P")(migOn(t, n.lib, 0).GetP2PStatus(gpuHandle(t, n.lib, 1), nvml.P2P_CAPS_INDEX_READ))
			if status == nvml.P2P_STATUS_NOT_SUPPORTED {
				return nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.SUCCESS
		}, nvml.ERROR_NOT_SUPPORTED},
		{"events of a type that the GPU does not report", "l40s", func(t *testing.T, n node) nvml.Return {
			set := must[nvml.EventSet](t, "set")(n.lib.EventSetCreate())
			return gpuHandle(t, n.lib, 0).RegisterEvents(nvml.EventTypeClock, set)
		}, nvml.ERROR_NOT_SUPPORTED},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, lib := newTestSim(t, tc.model)
			if got := tc.do(t, node{s, lib}); got != tc.want {
				t.Errorf("got %s, want %s", ReturnName(got), ReturnName(tc.want))
			}
		})
	}
}

func TestProcessesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		prep func(t *testing.T, s *Sim, lib nvml.Interface)
		p    Process
		want error
	}{
		{"more memory than the GPU has", nil, Process{PID: 1, MemoryBytes: 80 << 40}, simerr.ErrNoCapacity},
		{"more memory than is left", func(t *testing.T, s *Sim, _ nvml.Interface) {
			if err := s.AddProcess(0, Process{PID: 1, MemoryBytes: 80000 << 20}); err != nil {
				t.Fatal(err)
			}
		}, Process{PID: 2, MemoryBytes: 2000 << 20}, simerr.ErrNoCapacity},
		{"a mode that prohibits computing", func(t *testing.T, _ *Sim, lib nvml.Interface) {
			succeed(t, gpuHandle(t, lib, 0).SetComputeMode(nvml.COMPUTEMODE_PROHIBITED))
		}, Process{PID: 1}, simerr.ErrInUse},
		{"a second process in exclusive mode", func(t *testing.T, s *Sim, lib nvml.Interface) {
			succeed(t, gpuHandle(t, lib, 0).SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
			if err := s.AddProcess(0, Process{PID: 1}); err != nil {
				t.Fatal(err)
			}
		}, Process{PID: 2}, simerr.ErrInUse},
		{"the whole of a GPU in MIG mode", func(t *testing.T, _ *Sim, lib nvml.Interface) { migOn(t, lib, 0) }, Process{PID: 1}, simerr.ErrInvalid},
		{"a MIG device that is not there", nil, Process{PID: 1, Device: "MIG-x"}, simerr.ErrNotFound},
		{"a lost GPU", func(t *testing.T, s *Sim, _ nvml.Interface) {
			if err := s.LoseGPU(0); err != nil {
				t.Fatal(err)
			}
		}, Process{PID: 1}, simerr.ErrLost},
		{"no PID", nil, Process{}, simerr.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, lib := newTestSim(t, "dgx-h100")
			if tc.prep != nil {
				tc.prep(t, s, lib)
			}
			if err := s.AddProcess(0, tc.p); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}
