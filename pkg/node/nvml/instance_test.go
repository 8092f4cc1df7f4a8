// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

func TestOnlyThePartitionAtThePlacementIsDestroyed(t *testing.T) {
	l, a := first(t, simulate(t, "dgx-h100"))
	must(t, l.SetMIGMode(t.Context(), a, true))
	for start := range 3 {
		_, err := l.CreatePartition(t.Context(), a, profile(t, "1g.10gb"), start)
		must(t, err)
	}
	must(t, l.DestroyPartition(t.Context(), a, profile(t, "1g.10gb"), 1))
	if got := partitions(t, l, a); got != "on 1g.10gb@0 1g.10gb@2" {
		t.Errorf("left: %s, want those at 0 and 2", got)
	}
	// A partition that is made again is the one that is there, and no other.
	before, err := l.CreatePartition(t.Context(), a, profile(t, "1g.10gb"), 2)
	must(t, err)
	must(t, l.DestroyPartition(t.Context(), a, profile(t, "1g.10gb"), 0))
	again, err := l.CreatePartition(t.Context(), a, profile(t, "1g.10gb"), 2)
	must(t, err)
	if before != again {
		t.Errorf("the partition at 2 is %+v, and then %+v", before, again)
	}
}

// computeSlices returns the compute slices of the instances on the first GPU, by
// those of their GPU instance.
func computeSlices(t *testing.T, sim *nvmlsim.Sim) map[uint32]uint32 {
	t.Helper()
	lib := sim.NVML()
	done := func(what string, ret gonvml.Return) {
		t.Helper()
		if ret != gonvml.SUCCESS {
			t.Fatalf("%s: %d", what, ret)
		}
	}
	done("start", lib.Init())
	device, ret := lib.DeviceGetHandleByIndex(0)
	done("get the GPU", ret)
	slices := map[uint32]uint32{}
	for number := range gonvml.GPU_INSTANCE_PROFILE_COUNT {
		profile, ret := device.GetGpuInstanceProfileInfo(number)
		if ret != gonvml.SUCCESS {
			continue
		}
		instances, ret := device.GetGpuInstances(&profile)
		done("list the GPU instances", ret)
		for _, instance := range instances {
			for number := range gonvml.COMPUTE_INSTANCE_PROFILE_COUNT {
				compute, ret := instance.GetComputeInstanceProfileInfo(number, gonvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret != gonvml.SUCCESS {
					continue
				}
				computes, ret := instance.GetComputeInstances(&compute)
				done("list the compute instances", ret)
				slices[profile.SliceCount] += compute.SliceCount * uint32(len(computes))
			}
		}
	}
	return slices
}

func TestAPartitionHasAllTheComputeOfItsProfile(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l, a := first(t, sim)
	must(t, l.SetMIGMode(t.Context(), a, true))
	for name, start := range map[string]int{"3g.40gb": 0, "2g.20gb": 4, "1g.10gb": 6} {
		_, err := l.CreatePartition(t.Context(), a, profile(t, name), start)
		must(t, err)
	}
	for of, got := range computeSlices(t, sim) {
		if got != of {
			t.Errorf("the MIG device of %d compute slices can use %d of them", of, got)
		}
	}
}

// restarts counts how often the library is shut down.
type restarts struct {
	gonvml.Interface

	shutdowns int
}

func (r *restarts) Shutdown() gonvml.Return {
	r.shutdowns++
	return r.Interface.Shutdown()
}

// NVML counts the GPUs when it starts. So a GPU that is added later is found by a
// restart of NVML.
func TestALibraryWithoutGPUsIsStartedAnewForTheNextScan(t *testing.T) {
	m, err := nvmlsim.LoadModel("t4")
	must(t, err)
	m.GPUs = nil
	lib := &restarts{Interface: create(t, m).NVML()}
	snapshot(t, nvml.New(lib))
	if lib.shutdowns != 1 {
		t.Errorf("a node without GPUs: the library was shut down %d times, want once", lib.shutdowns)
	}
	lib = &restarts{Interface: simulate(t, "t4").NVML()}
	snapshot(t, nvml.New(lib))
	if lib.shutdowns != 0 {
		t.Errorf("a node with GPUs: the library was shut down %d times, want never", lib.shutdowns)
	}
}
