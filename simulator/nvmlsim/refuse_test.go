// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// testNode is a simulated node of a test.
type testNode struct {
	t   *testing.T
	sim *Sim
	lib nvml.Interface
}

func (n testNode) gpu(index int) nvml.Device { return gpuHandle(n.t, n.lib, index) }

// mig returns the first GPU in MIG mode.
func (n testNode) mig() nvml.Device { return migOn(n.t, n.lib, 0) }

// What the hardware refuses, the simulator refuses with the same code.
func TestNVMLRefuses(t *testing.T) {
	oneG, threeG, sevenG := nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE
	createAt := func(n testNode, d nvml.Device, number int, start, size uint32) nvml.Return {
		return returned(d.CreateGpuInstanceWithPlacement(profileInfo(n.t, d, number), &nvml.GpuInstancePlacement{Start: start, Size: size}))
	}
	process := func(n testNode, p Process) {
		n.t.Helper()
		noError(n.t, n.sim.AddProcess(0, p))
	}
	for _, tc := range []struct {
		name  string
		model string
		do    func(n testNode) nvml.Return
		want  nvml.Return
	}{
		{"a call after the last shutdown", "t4", func(n testNode) nvml.Return {
			d := n.gpu(0)
			succeed(n.t, n.lib.Shutdown())
			_, ret := d.GetUUID()
			succeed(n.t, n.lib.Init())
			return ret
		}, nvml.ERROR_UNINITIALIZED},
		{"one shutdown too many", "t4", func(n testNode) nvml.Return {
			succeed(n.t, n.lib.Shutdown())
			ret := n.lib.Shutdown()
			succeed(n.t, n.lib.Init())
			return ret
		}, nvml.ERROR_UNINITIALIZED},
		{"an index beyond the last GPU", "t4", func(n testNode) nvml.Return { return returned(n.lib.DeviceGetHandleByIndex(4)) }, nvml.ERROR_INVALID_ARGUMENT},
		{"an unknown UUID", "t4", func(n testNode) nvml.Return {
			return returned(n.lib.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000"))
		}, nvml.ERROR_NOT_FOUND},
		{"an unknown PCI address", "t4", func(n testNode) nvml.Return { return returned(n.lib.DeviceGetHandleByPciBusId("0000:ff:00.0")) }, nvml.ERROR_NOT_FOUND},
		{"a malformed PCI address", "t4", func(n testNode) nvml.Return { return returned(n.lib.DeviceGetHandleByPciBusId("here")) }, nvml.ERROR_INVALID_ARGUMENT},
		{"a lost GPU", "t4", func(n testNode) nvml.Return {
			d := n.gpu(1)
			noError(n.t, n.sim.LoseGPU(1))
			return returned(d.GetUUID())
		}, nvml.ERROR_GPU_IS_LOST},
		{"the handle of a lost GPU", "t4", func(n testNode) nvml.Return {
			noError(n.t, n.sim.LoseGPU(1))
			return returned(n.lib.DeviceGetHandleByIndex(1))
		}, nvml.ERROR_GPU_IS_LOST},
		{"a driver that is not loaded", "t4", func(n testNode) nvml.Return {
			noError(n.t, n.sim.UnloadDriver())
			return n.lib.Init()
		}, nvml.ERROR_DRIVER_NOT_LOADED},
		{"the attributes of a whole GPU", "dgx-h100", func(n testNode) nvml.Return { return returned(n.gpu(0).GetAttributes()) }, nvml.ERROR_NOT_SUPPORTED},
		{"NVLink on a GPU without", "l40s", func(n testNode) nvml.Return { return returned(n.gpu(0).GetNvLinkState(0)) }, nvml.ERROR_NOT_SUPPORTED},
		{"a link beyond the last", "dgx-h100", func(n testNode) nvml.Return { return returned(n.gpu(0).GetNvLinkState(18)) }, nvml.ERROR_INVALID_ARGUMENT},
		{"the far end of a link that is down", "dgx-h100", func(n testNode) nvml.Return {
			noError(n.t, n.sim.LinkDown(0, 3))
			return returned(n.gpu(0).GetNvLinkRemotePciInfo(3))
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a compute mode that is none", "t4", func(n testNode) nvml.Return { return n.gpu(0).SetComputeMode(nvml.COMPUTEMODE_COUNT) }, nvml.ERROR_INVALID_ARGUMENT},
		{"the compute mode of a GPU in MIG mode", "dgx-h100", func(n testNode) nvml.Return { return n.mig().SetComputeMode(nvml.COMPUTEMODE_DEFAULT) }, nvml.ERROR_NOT_SUPPORTED},
		{"MIG mode on a GPU without MIG", "t4", func(n testNode) nvml.Return { return returned(n.gpu(0).SetMigMode(nvml.DEVICE_MIG_ENABLE)) }, nvml.ERROR_NOT_SUPPORTED},
		{"a MIG mode that is none", "dgx-h100", func(n testNode) nvml.Return { return returned(n.gpu(0).SetMigMode(7)) }, nvml.ERROR_INVALID_ARGUMENT},
		{"MIG mode while a process computes", "dgx-h100", func(n testNode) nvml.Return {
			process(n, Process{PID: 1, MemoryBytes: 1 << 20})
			d := n.gpu(0)
			activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
			if now, _, _ := d.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_DISABLE {
				n.t.Errorf("%v, and the mode is %d", ret, now)
			}
			return activation
		}, nvml.ERROR_IN_USE},
		{"MIG mode off while there are instances", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, oneG, 0, 1)
			return returned(d.SetMigMode(nvml.DEVICE_MIG_DISABLE))
		}, nvml.ERROR_IN_USE},
		{"an instance without MIG mode", "dgx-h100", func(n testNode) nvml.Return { return createAt(n, n.gpu(0), oneG, 0, 1) }, nvml.ERROR_NOT_SUPPORTED},
		{"a profile that the GPU has not", "dgx-h100", func(n testNode) nvml.Return {
			return returned(n.gpu(0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_6_SLICE))
		}, nvml.ERROR_NOT_SUPPORTED},
		{"a profile that NVML has not", "dgx-h100", func(n testNode) nvml.Return {
			return returned(n.gpu(0).GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT))
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"a placement that the profile has not", "dgx-h100", func(n testNode) nvml.Return { return createAt(n, n.mig(), threeG, 2, 4) }, nvml.ERROR_INVALID_ARGUMENT},
		{"a placement of another size", "dgx-h100", func(n testNode) nvml.Return { return createAt(n, n.mig(), threeG, 4, 3) }, nvml.ERROR_INVALID_ARGUMENT},
		{"no placement", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			return returned(d.CreateGpuInstanceWithPlacement(profileInfo(n.t, d, oneG), nil))
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"the same place twice", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, oneG, 3, 1)
			return createAt(n, d, oneG, 3, 1)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a place that overlaps another", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, oneG, 3, 1)
			return createAt(n, d, threeG, 0, 4)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"the whole GPU with a partition", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, oneG, 6, 1)
			return createAt(n, d, sevenG, 0, 8)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a second +me", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0, 1)
			return createAt(n, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 1, 1)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"a second +me of another size", "a30-bridge", func(n testNode) nvml.Return {
			if _, ret := n.gpu(0).SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
				return ret
			}
			noError(n.t, n.sim.ResetGPU(0))
			d := n.gpu(0)
			place(n.t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0, 1)
			return createAt(n, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1, 2, 2)
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"an eighth compute slice", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			place(n.t, d, nvml.GPU_INSTANCE_PROFILE_4_SLICE, 0, 4)
			for start := range uint32(3) {
				place(n.t, d, oneG, 4+start, 1)
			}
			return returned(d.CreateGpuInstance(profileInfo(n.t, d, oneG)))
		}, nvml.ERROR_INSUFFICIENT_RESOURCES},
		{"destroying an instance with a compute instance", "dgx-h100", func(n testNode) nvml.Return {
			in := place(n.t, n.mig(), oneG, 0, 1)
			spanning(n.t, in, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
			return in.Destroy()
		}, nvml.ERROR_IN_USE},
		{"destroying a compute instance that a process uses", "dgx-h100", func(n testNode) nvml.Return {
			ci := spanning(n.t, place(n.t, n.mig(), oneG, 0, 1), nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
			info := must[nvml.ComputeInstanceInfo](n.t, "info")(ci.GetInfo())
			process(n, Process{PID: 1, MemoryBytes: 1 << 20, Device: must[string](n.t, "UUID")(info.Device.GetUUID())})
			return ci.Destroy()
		}, nvml.ERROR_IN_USE},
		{"destroying an instance twice", "dgx-h100", func(n testNode) nvml.Return {
			in := place(n.t, n.mig(), oneG, 0, 1)
			succeed(n.t, in.Destroy())
			return in.Destroy()
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"an old handle of a place that is taken again", "dgx-h100", func(n testNode) nvml.Return {
			d := n.mig()
			in := place(n.t, d, oneG, 0, 1)
			succeed(n.t, in.Destroy())
			place(n.t, d, oneG, 0, 1)
			return in.Destroy()
		}, nvml.ERROR_INVALID_ARGUMENT},
		{"an instance that is not there", "dgx-h100", func(n testNode) nvml.Return { return returned(n.mig().GetGpuInstanceById(9)) }, nvml.ERROR_NOT_FOUND},
		{"a MIG device that is not there", "dgx-h100", func(n testNode) nvml.Return { return returned(n.mig().GetMigDeviceHandleByIndex(0)) }, nvml.ERROR_NOT_FOUND},
		{"P2P between GPUs in MIG mode", "dgx-h100", func(n testNode) nvml.Return {
			status := must[nvml.GpuP2PStatus](n.t, "P2P")(n.mig().GetP2PStatus(n.gpu(1), nvml.P2P_CAPS_INDEX_READ))
			if status == nvml.P2P_STATUS_NOT_SUPPORTED {
				return nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.SUCCESS
		}, nvml.ERROR_NOT_SUPPORTED},
		{"events of a type that the GPU does not report", "l40s", func(n testNode) nvml.Return {
			set := must[nvml.EventSet](n.t, "set")(n.lib.EventSetCreate())
			return n.gpu(0).RegisterEvents(nvml.EventTypeClock, set)
		}, nvml.ERROR_NOT_SUPPORTED},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, lib := newTestSim(t, tc.model)
			if got := tc.do(testNode{t, s, lib}); got != tc.want {
				t.Errorf("got %s, want %s", ReturnName(got), ReturnName(tc.want))
			}
		})
	}
}

// returned returns the code of a call that also has a result.
func returned[T any](_ T, ret nvml.Return) nvml.Return { return ret }

func TestProcessesAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		prep func(t *testing.T, s *Sim, lib nvml.Interface)
		p    Process
		want error
	}{
		{"more memory than the GPU has", nil, Process{PID: 1, MemoryBytes: 80 << 40}, simerr.ErrNoCapacity},
		{"more memory than is left", func(t *testing.T, s *Sim, _ nvml.Interface) {
			noError(t, s.AddProcess(0, Process{PID: 1, MemoryBytes: 80000 << 20}))
		}, Process{PID: 2, MemoryBytes: 2000 << 20}, simerr.ErrNoCapacity},
		{"a mode that prohibits computing", func(t *testing.T, _ *Sim, lib nvml.Interface) {
			succeed(t, gpuHandle(t, lib, 0).SetComputeMode(nvml.COMPUTEMODE_PROHIBITED))
		}, Process{PID: 1}, simerr.ErrInUse},
		{"a second process in exclusive mode", func(t *testing.T, s *Sim, lib nvml.Interface) {
			succeed(t, gpuHandle(t, lib, 0).SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
			noError(t, s.AddProcess(0, Process{PID: 1}))
		}, Process{PID: 2}, simerr.ErrInUse},
		{"the whole of a GPU in MIG mode", func(t *testing.T, _ *Sim, lib nvml.Interface) { migOn(t, lib, 0) }, Process{PID: 1}, simerr.ErrInvalid},
		{"a MIG device that is not there", nil, Process{PID: 1, Device: "MIG-x"}, simerr.ErrNotFound},
		{"a lost GPU", func(t *testing.T, s *Sim, _ nvml.Interface) {
			noError(t, s.LoseGPU(0))
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
