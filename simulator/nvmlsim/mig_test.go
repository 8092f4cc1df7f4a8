// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// migOn returns a GPU with MIG mode on.
func migOn(t testing.TB, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	d := gpuHandle(t, lib, index)
	if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); activation != nvml.SUCCESS || ret != nvml.SUCCESS {
		t.Fatalf("SetMigMode: %v, %v", activation, ret)
	}
	return d
}

func profileInfo(t testing.TB, d nvml.Device, number int) *nvml.GpuInstanceProfileInfo {
	t.Helper()
	info := must[nvml.GpuInstanceProfileInfo](t, "profile info")(d.GetGpuInstanceProfileInfo(number))
	return &info
}

// place makes a GPU instance.
func place(t testing.TB, d nvml.Device, number int, start, size uint32) nvml.GpuInstance {
	t.Helper()
	return must[nvml.GpuInstance](t, fmt.Sprintf("create profile %d at %d", number, start))(
		d.CreateGpuInstanceWithPlacement(profileInfo(t, d, number), &nvml.GpuInstancePlacement{Start: start, Size: size}))
}

// spanning makes a compute instance that spans a GPU instance.
func spanning(t testing.TB, in nvml.GpuInstance, number int) nvml.ComputeInstance {
	t.Helper()
	info := must[nvml.ComputeInstanceProfileInfo](t, "compute profile")(in.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED))
	return must[nvml.ComputeInstance](t, "compute instance")(in.CreateComputeInstance(&info))
}

func TestMIGDeviceFromModeToTeardown(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	d := migOn(t, lib, 1)
	in := place(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 4, 4)
	ci := spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)

	info := must[nvml.ComputeInstanceInfo](t, "info")(ci.GetInfo())
	mig := info.Device
	uuid := must[string](t, "UUID")(mig.GetUUID())
	if byIndex := must[nvml.Device](t, "by index")(d.GetMigDeviceHandleByIndex(0)); byIndex != mig {
		t.Errorf("by index %v, by compute instance %v", byIndex, mig)
	}
	if byUUID := must[nvml.Device](t, "by UUID")(lib.DeviceGetHandleByUUID(uuid)); byUUID != mig {
		t.Errorf("by UUID %v, by compute instance %v", byUUID, mig)
	}
	if parent := must[nvml.Device](t, "parent")(mig.GetDeviceHandleFromMigDeviceHandle()); parent != d {
		t.Errorf("parent %v, want %v", parent, d)
	}
	if name := must[string](t, "name")(mig.GetName()); name != "NVIDIA H100 80GB HBM3 MIG 3g.40gb" {
		t.Errorf("name %q", name)
	}
	want := nvml.DeviceAttributes{MultiprocessorCount: 60, SharedCopyEngineCount: 3, SharedDecoderCount: 3, SharedJpegCount: 3, GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 40448}
	if diff := cmp.Diff(want, must[nvml.DeviceAttributes](t, "attributes")(mig.GetAttributes())); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if memory := must[nvml.Memory](t, "memory")(mig.GetMemoryInfo()); memory.Total != 40448<<20 {
		t.Errorf("memory %d", memory.Total)
	}
	gi, ciID := must[int](t, "GI")(mig.GetGpuInstanceId()), must[int](t, "CI")(mig.GetComputeInstanceId())
	for _, path := range []string{
		fmt.Sprintf("proc/driver/nvidia/capabilities/gpu1/mig/gi%d/access", gi),
		fmt.Sprintf("proc/driver/nvidia/capabilities/gpu1/mig/gi%d/ci%d/access", gi, ciID),
		fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", instanceCap(1, gi)),
		fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", computeCap(1, gi, ciID)),
	} {
		if _, err := os.Stat(filepath.Join(s.Root(), path)); err != nil {
			t.Errorf("%v", err)
		}
	}

	if ret := ci.Destroy(); ret != nvml.SUCCESS {
		t.Fatalf("destroy the compute instance: %v", ret)
	}
	if _, ret := mig.GetUUID(); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("the handle of a MIG device that is gone: %v", ret)
	}
	if ret := in.Destroy(); ret != nvml.SUCCESS {
		t.Fatalf("destroy the GPU instance: %v", ret)
	}
	if _, ret := in.GetInfo(); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("the handle of an instance that is gone: %v", ret)
	}
	left, err := filepath.Glob(filepath.Join(s.Root(), "proc/driver/nvidia/capabilities/gpu1/mig/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("capabilities left: %v, %v", left, err)
	}
	caps, err := filepath.Glob(filepath.Join(s.Root(), "dev/nvidia-caps/*"))
	if err != nil || len(caps) != 2 {
		t.Errorf("capability nodes left: %v, %v", caps, err)
	}
}

func TestComputeInstancesShareAGPUInstance(t *testing.T) {
	_, lib := newTestSim(t, "dgx-h100")
	d := migOn(t, lib, 0)
	in := place(t, d, nvml.GPU_INSTANCE_PROFILE_3_SLICE, 0, 4)
	second, first := spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE), spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
	_ = second
	info := must[nvml.ComputeInstanceInfo](t, "info")(first.GetInfo())
	if name := must[string](t, "name")(info.Device.GetName()); name != "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb" {
		t.Errorf("name %q", name)
	}
	one := must[nvml.ComputeInstanceProfileInfo](t, "profile")(in.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0))
	if _, ret := in.CreateComputeInstance(&one); ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		t.Errorf("a fourth slice of three: %v", ret)
	}
}

func TestMIGModeFollowsTheGeneration(t *testing.T) {
	for _, tc := range []struct {
		model                         string
		activation                    nvml.Return
		now, afterReset, afterReboots int
	}{
		{"dgx-a100", nvml.ERROR_RESET_REQUIRED, nvml.DEVICE_MIG_DISABLE, nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE},
		{"dgx-h100", nvml.SUCCESS, nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_DISABLE},
	} {
		t.Run(tc.model, func(t *testing.T) {
			s, lib := newTestSim(t, tc.model)
			d := gpuHandle(t, lib, 0)
			if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); activation != tc.activation || ret != nvml.SUCCESS {
				t.Fatalf("SetMigMode: %v, %v", activation, ret)
			}
			check := func(when string, wantNow, wantPending int) {
				t.Helper()
				now, pending, ret := d.GetMigMode()
				if now != wantNow || pending != wantPending || ret != nvml.SUCCESS {
					t.Errorf("%s: mode %d, pending %d (%v), want %d and %d", when, now, pending, ret, wantNow, wantPending)
				}
			}
			check("at once", tc.now, nvml.DEVICE_MIG_ENABLE)
			noError(t, s.ResetGPU(0))
			check("after a reset", tc.afterReset, tc.afterReset)
			place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 0, 1)
			noError(t, s.Reboot())
			check("after a reboot", tc.afterReboots, tc.afterReboots)
			st, err := s.State()
			noError(t, err)
			if n := len(st.GPUs[0].Instances); n != 0 {
				t.Errorf("%d instances outlive a reboot", n)
			}
		})
	}
}

// machine drives two handles of one node at random. After every step it checks that
// the node's state could exist in hardware.
type machine struct {
	sims [2]*Sim
	libs [2]nvml.Interface
}

func TestInstancesNeverOverlapOrExceedTheGPU(t *testing.T) {
	machines := map[string]*machine{}
	for _, model := range []string{"dgx-h100", "dgx-a100", "a30-bridge"} {
		s, lib := newTestSim(t, model)
		other, otherLib := another(t, s)
		machines[model] = &machine{sims: [2]*Sim{s, other}, libs: [2]nvml.Interface{lib, otherLib}}
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := machines[rapid.SampledFrom(slices.Sorted(maps.Keys(machines))).Draw(rt, "model")]
		// Each run starts from an empty GPU in MIG mode.
		if err := m.sims[0].update(func(st *State) error {
			st.GPUs[0] = GPUState{MIGMode: true, MIGPending: true, ComputeMode: "Default"}
			return nil
		}); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create":  m.create,
			"destroy": m.destroy,
			"":        m.check,
		})
	})
}

func (m *machine) create(t *rapid.T) {
	d, _ := m.libs[rapid.IntRange(0, 1).Draw(t, "process")].DeviceGetHandleByIndex(0)
	spec := m.sims[0].node.gpus[0]
	p := rapid.SampledFrom(spec.kind.MIG.Profiles).Draw(t, "profile")
	info, ret := d.GetGpuInstanceProfileInfo(p.Profile)
	if ret != nvml.SUCCESS {
		t.Fatalf("profile %s: %v", p.Name, ret)
	}
	remaining, ret := d.GetGpuInstanceRemainingCapacity(&info)
	if ret != nvml.SUCCESS {
		t.Fatalf("capacity for %s: %v", p.Name, ret)
	}
	in, ret := d.CreateGpuInstance(&info)
	if (ret == nvml.SUCCESS) != (remaining > 0) || ret != nvml.SUCCESS && ret != nvml.ERROR_INSUFFICIENT_RESOURCES {
		t.Fatalf("create %s: %v with capacity for %d", p.Name, ret, remaining)
	}
	if ret != nvml.SUCCESS {
		return
	}
	number := rapid.IntRange(0, nvml.COMPUTE_INSTANCE_PROFILE_COUNT-1).Draw(t, "compute profile")
	ci, ret := in.GetComputeInstanceProfileInfo(number, 0)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return
	}
	if _, ret = in.CreateComputeInstance(&ci); ret != nvml.SUCCESS {
		t.Fatalf("compute instance in an empty GPU instance: %v", ret)
	}
}

func (m *machine) destroy(t *rapid.T) {
	d, _ := m.libs[rapid.IntRange(0, 1).Draw(t, "process")].DeviceGetHandleByIndex(0)
	st, err := m.sims[0].State()
	noError(t, err)
	if len(st.GPUs[0].Instances) == 0 {
		return
	}
	victim := rapid.SampledFrom(st.GPUs[0].Instances).Draw(t, "instance")
	in, ret := d.GetGpuInstanceById(victim.ID)
	if ret != nvml.SUCCESS {
		t.Fatalf("instance %d: %v", victim.ID, ret)
	}
	for _, c := range victim.Compute {
		if ret := in.Destroy(); ret != nvml.ERROR_IN_USE {
			t.Fatalf("destroy an instance with compute instances: %v", ret)
		}
		ci, ret := in.GetComputeInstanceById(c.ID)
		if ret != nvml.SUCCESS {
			t.Fatalf("compute instance %d: %v", c.ID, ret)
		}
		if ret := ci.Destroy(); ret != nvml.SUCCESS {
			t.Fatalf("destroy compute instance %d: %v", c.ID, ret)
		}
	}
	if ret := in.Destroy(); ret != nvml.SUCCESS {
		t.Fatalf("destroy instance %d: %v", victim.ID, ret)
	}
}

func (m *machine) check(t *rapid.T) {
	var states [2]*State
	for i, s := range m.sims {
		st, err := s.State()
		noError(t, err)
		states[i] = st
	}
	if diff := cmp.Diff(states[0], states[1]); diff != "" {
		t.Fatalf("two processes see different nodes (-one +other):\n%s", diff)
	}
	spec, g := m.sims[0].node.gpus[0], &states[0].GPUs[0]
	slots := make([]int, spec.kind.MIG.MemorySlices)
	var compute, memory, media int
	ids := map[int]bool{}
	for _, in := range g.Instances {
		p := spec.profiles[in.Profile]
		for i := in.Start; i < in.Start+p.Size; i++ {
			slots[i]++
		}
		compute, memory, media = compute+p.slices, memory+int(p.MemoryMiB), media+p.OFAs
		if ids[in.ID] {
			t.Fatalf("two instances with ID %d", in.ID)
		}
		ids[in.ID] = true
		if !slices.Contains(p.Starts, in.Start) {
			t.Fatalf("%s at %d", p.Name, in.Start)
		}
	}
	if slices.Max(slots) > 1 {
		t.Fatalf("instances overlap: %v", g.Instances)
	}
	if compute > spec.kind.MIG.ComputeSlices || memory > int(spec.kind.MemoryMiB) || media > 1 {
		t.Fatalf("%d compute slices, %d MiB, %d media extensions: %v", compute, memory, media, g.Instances)
	}
	nodes, err := filepath.Glob(filepath.Join(m.sims[0].Root(), "proc/driver/nvidia/capabilities/gpu0/mig/gi*"))
	if err != nil || len(nodes) != len(g.Instances) {
		t.Fatalf("capabilities %v for %v", nodes, g.Instances)
	}
}

// kubernetes-sigs/dra-driver-nvidia-gpu#1480: nvml.h names two profiles of seven
// slices, and an A100 has the first.
func TestTheSecondComputeProfileOfSevenSlices(t *testing.T) {
	m, err := LoadModel("dgx-a100")
	noError(t, err)
	m.GPUs[0].MIGMode = true
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	lib := initialised(t, s)
	in := place(t, gpuHandle(t, lib, 0), nvml.GPU_INSTANCE_PROFILE_7_SLICE, 0, 8)
	if _, ret := in.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL, 0); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("its information: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
	}
	if _, ret := in.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL}); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("create: %v, want %v", ret, nvml.ERROR_NOT_SUPPORTED)
	}
	spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE)
}
