// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	conformance "github.com/gpu-dra/gpu-dra-driver/test/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// simulate makes a node of a built-in model.
func simulate(t *testing.T, model string) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	return create(t, m)
}

func create(t *testing.T, m *nvmlsim.Model) *nvmlsim.Sim {
	t.Helper()
	sim, err := nvmlsim.Create(files.ShortDir(t), m)
	must(t, err)
	// Release calls that still hang, so that the Library can be closed.
	t.Cleanup(func() { must(t, sim.ClearFaults()) })
	return sim
}

var must = require.NoError

func fail(t *testing.T, sim *nvmlsim.Sim, method string, index int, ret gonvml.Return) {
	t.Helper()
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: method, GPU: &index, Return: ret}))
}

func snapshot(t *testing.T, l *nvml.Library) gpu.Node {
	t.Helper()
	node, err := l.Snapshot(t.Context())
	must(t, err)
	return node
}

func TestSnapshotOfEachModel(t *testing.T) {
	for _, model := range nvmlsim.ModelNames() {
		t.Run(model, func(t *testing.T) {
			var got string
			// With a clock that stands still, no limit ends a call on a busy machine.
			synctest.Test(t, func(t *testing.T) {
				got = conformance.Describe(snapshot(t, nvml.New(simulate(t, model).NVML())))
			})
			golden := filepath.Join("testdata", model+".txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("snapshot (-want +got), UPDATE_GOLDEN=1 accepts it:\n%s", diff)
			}
		})
	}
}

func TestADriverThatIsLoadedLaterIsFound(t *testing.T) {
	sim := simulate(t, "t4")
	must(t, sim.UnloadDriver())
	l := nvml.New(sim.NVML())
	for range 2 {
		_, err := l.Snapshot(t.Context())
		require.Error(t, "without the driver", err, gpu.ErrNotReady)
	}
	_, err := l.DriverVersion(t.Context())
	require.Error(t, "the version without the driver", err, gpu.ErrNotReady)
	must(t, sim.ClearFaults())
	if node := snapshot(t, l); len(node.GPUs) != 4 {
		t.Errorf("%d GPUs once the driver is loaded, want 4", len(node.GPUs))
	}
}

func TestADriverThatIsUnloadedIsNotReady(t *testing.T) {
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	must(t, sim.UnloadDriver())
	_, err := l.Snapshot(t.Context())
	require.Error(t, "Snapshot", err, gpu.ErrNotReady)
	_, err = l.DriverVersion(t.Context())
	require.Error(t, "the version", err, gpu.ErrNotReady)
	must(t, sim.ClearFaults())
	if node := snapshot(t, l); len(node.GPUs) != 4 {
		t.Errorf("%d GPUs once the driver is loaded again, want 4", len(node.GPUs))
	}
	if version, err := l.DriverVersion(t.Context()); err != nil || version == "" {
		t.Errorf("version %q, %v once the driver is loaded again", version, err)
	}
}

func TestANodeWithoutGPUsIsEmpty(t *testing.T) {
	m, err := nvmlsim.LoadModel("t4")
	must(t, err)
	m.GPUs = nil
	node := snapshot(t, nvml.New(create(t, m).NVML()))
	if len(node.GPUs)+len(node.Unreadable) != 0 {
		t.Errorf("GPUs on a node without any:\n%s", conformance.Describe(node))
	}
	if node.DriverVersion == "" {
		t.Error("no driver version, though the driver is loaded")
	}
}

func TestAReleaseThatDoesNotStartWithoutGPUs(t *testing.T) {
	sim := simulate(t, "t4")
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "Init", Return: gonvml.ERROR_GPU_NOT_FOUND, Count: 1}))
	l := nvml.New(sim.NVML())
	if node := snapshot(t, l); len(node.GPUs) != 0 {
		t.Errorf("GPUs on a node without any:\n%s", conformance.Describe(node))
	}
	if node := snapshot(t, l); len(node.GPUs) != 4 {
		t.Errorf("%d GPUs once they are there, want 4", len(node.GPUs))
	}
}

// others checks that only the GPU at index 3 of eight is unreadable, and returns it.
func others(t *testing.T, node gpu.Node) gpu.Unreadable {
	t.Helper()
	if len(node.GPUs) != 7 || len(node.Unreadable) != 1 || node.Unreadable[0].Index != 3 {
		t.Fatalf("want seven GPUs and an unreadable one:\n%s", conformance.Describe(node))
	}
	return node.Unreadable[0]
}

func TestOneGPUOfEightIsUnreadable(t *testing.T) {
	address := gpu.PCIAddress{Bus: 0x0b}
	for _, c := range []struct {
		name    string
		happens func(*testing.T, *nvmlsim.Sim)
		want    error // nil for none of the sentinels; above all, such a GPU is not lost
	}{
		{"lost", func(t *testing.T, s *nvmlsim.Sim) { must(t, s.LoseGPU(3)) }, gpu.ErrLost},
		{"its UUID cannot be read", func(t *testing.T, s *nvmlsim.Sim) { fail(t, s, "DeviceGetUUID", 3, gonvml.ERROR_UNKNOWN) }, nil},
		{"its minor cannot be read", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetMinorNumber", 3, gonvml.ERROR_NOT_SUPPORTED)
		}, gpu.ErrNotSupported},
		{"its memory cannot be read", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetMemoryInfo", 3, gonvml.ERROR_UNKNOWN)
		}, nil},
		{"kept from this process", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetHandleByIndex", 3, gonvml.ERROR_NO_PERMISSION)
		}, gpu.ErrPermission},
		{"waits for a reset", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetMemoryInfo", 3, gonvml.ERROR_RESET_REQUIRED)
		}, gpu.ErrLost},
		{"lost while an optional fact is read", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetNvLinkState", 3, gonvml.ERROR_GPU_IS_LOST)
		}, gpu.ErrLost},
		{"its MIG mode is unknown", func(t *testing.T, s *nvmlsim.Sim) { fail(t, s, "DeviceGetMigMode", 3, gonvml.ERROR_UNKNOWN) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := simulate(t, "dgx1-v100")
			l := nvml.New(sim.NVML())
			before := snapshot(t, l)
			c.happens(t, sim)
			u := others(t, snapshot(t, l))
			if c.want != nil && !errors.Is(u.Err, c.want) || c.want == nil && errors.Is(u.Err, gpu.ErrLost) {
				t.Errorf("reason %v, want %v", u.Err, c.want)
			}
			if got := u.Problem().Error(); !strings.HasPrefix(got, "GPU at 0000:0b:00.0: ") || strings.Count(got, "0000:0b:00.0") != 1 {
				t.Errorf("the problem is %q, want it to name the GPU once", got)
			}
			require.Same(t, "its address was read before", &address, u.Address)
			must(t, sim.ClearFaults())
			require.Same(t, "the node once all is well again", before, snapshot(t, l))
		})
	}
}

func TestAGPUThatWasNeverReadHasNoAddress(t *testing.T) {
	sim := simulate(t, "dgx1-v100")
	must(t, sim.LoseGPU(3))
	if u := others(t, snapshot(t, nvml.New(sim.NVML()))); u.Address != nil {
		t.Errorf("address %s of a GPU that was never read", u.Address)
	}
}

func TestFactsThatAreNotReportedAreAbsent(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	want := snapshot(t, l).GPUs[0]
	want.Brand, want.Architecture, want.Multiprocessors, want.ReservedBytes = "", "", 0, 0
	want.ECCEnabled, want.PersistenceMode, want.AddressingMode, want.ComputeMode = nil, nil, "", ""
	fail(t, sim, "DeviceGetNvLinkVersion", 0, gonvml.ERROR_NOT_SUPPORTED)
	if g := snapshot(t, l).GPUs[0]; !g.NVLinkVersion.IsZero() || len(g.Links) != len(want.Links) {
		t.Errorf("NVLink %v of %d links, want an unknown version of %d", g.NVLinkVersion, len(g.Links), len(want.Links))
	}
	want.Links, want.NVLinkVersion, want.MIG, want.Recovery, want.FabricState = []gpu.Link{}, gpu.Version{}, gpu.MIG{}, "", ""
	for method, ret := range map[string]gonvml.Return{
		"DeviceGetMemoryInfo_v2":   gonvml.ERROR_ARGUMENT_VERSION_MISMATCH,
		"DeviceGetBrand":           gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetArchitecture":    gonvml.ERROR_UNKNOWN,
		"DeviceGetNumGpuCores":     gonvml.ERROR_FUNCTION_NOT_FOUND,
		"DeviceGetEccMode":         gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetPersistenceMode": gonvml.ERROR_NO_PERMISSION,
		"DeviceGetAddressingMode":  gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetComputeMode":     gonvml.ERROR_NO_DATA,
		"DeviceGetNvLinkState":     gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetMigMode":         gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetFieldValues":     gonvml.ERROR_NOT_SUPPORTED,
		"DeviceGetGpuFabricInfo":   gonvml.ERROR_NOT_SUPPORTED,
	} {
		fail(t, sim, method, 0, ret)
	}
	require.Same(t, "GPU", want, snapshot(t, l).GPUs[0])
}

func TestReservedMemoryIsPartOfTheTotal(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	lib := sim.NVML()
	g := snapshot(t, nvml.New(lib)).GPUs[0]
	if g.MemoryBytes != 81559<<20 || g.ReservedBytes != 551<<20 {
		t.Errorf("total %d MiB, reserved %d MiB, want 81559 and 551", g.MemoryBytes>>20, g.ReservedBytes>>20)
	}
	// No process can use the reserved memory.
	usable := g.MemoryBytes - g.ReservedBytes
	require.Error(t, "more than the usable memory", sim.AddProcess(0, nvmlsim.Process{PID: 1, MemoryBytes: usable + 1}), simerr.ErrNoCapacity)
	must(t, sim.AddProcess(0, nvmlsim.Process{PID: 1, MemoryBytes: usable}))

	old := snapshot(t, nvml.New(withoutSymbol{lib, "nvmlDeviceGetMemoryInfo_v2"})).GPUs[0]
	if old.MemoryBytes != g.MemoryBytes || old.ReservedBytes != 0 {
		t.Errorf("an old library: total %d MiB, reserved %d MiB", old.MemoryBytes>>20, old.ReservedBytes>>20)
	}
}

func TestMIGPartitions(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	lib := sim.NVML()
	l := nvml.New(lib)
	snapshot(t, l)
	device, ret := lib.DeviceGetHandleByIndex(0)
	succeed(t, ret)
	_, ret = device.SetMigMode(gonvml.DEVICE_MIG_ENABLE)
	succeed(t, ret)

	instance := func(profile, start, size int) gonvml.GpuInstance {
		info, ret := device.GetGpuInstanceProfileInfo(profile)
		succeed(t, ret)
		in, ret := device.CreateGpuInstanceWithPlacement(&info, &gonvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(size)})
		succeed(t, ret)
		return in
	}
	compute := func(in gonvml.GpuInstance, profile int) {
		info, ret := in.GetComputeInstanceProfileInfo(profile, gonvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		succeed(t, ret)
		_, ret = in.CreateComputeInstance(&info)
		succeed(t, ret)
	}
	compute(instance(gonvml.GPU_INSTANCE_PROFILE_3_SLICE, 4, 4), gonvml.COMPUTE_INSTANCE_PROFILE_3_SLICE)
	instance(gonvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, 0, 1)

	mig := snapshot(t, l).GPUs[0].MIG
	if !mig.Enabled || !mig.PendingEnabled {
		t.Errorf("MIG enabled %v and pending %v, want both", mig.Enabled, mig.PendingEnabled)
	}
	want := []gpu.Partition{
		{Profile: gpu.Profile{Slices: 1, MemoryGB: 10, Media: "+me"}, Placement: gpu.Placement{Start: 0, Size: 1}},
		{Profile: gpu.Profile{Slices: 3, MemoryGB: 40}, Placement: gpu.Placement{Start: 4, Size: 4}},
	}
	got := slices.Clone(mig.Partitions)
	for i := range got {
		if hasUUID := got[i].UUID != ""; hasUUID != (got[i].Placement.Start == 4) {
			t.Errorf("partition %s has UUID %q", got[i].Profile, got[i].UUID)
		}
		got[i].UUID, got[i].GPUInstanceID, got[i].ComputeInstanceID = "", 0, 0
	}
	require.Same(t, "partitions", want, got)

	t.Run("that cannot be listed make the GPU unreadable", func(t *testing.T) {
		fail(t, sim, "DeviceGetGpuInstances", 0, gonvml.ERROR_NO_PERMISSION)
		node := snapshot(t, l)
		if len(node.Unreadable) != 1 || !errors.Is(node.Unreadable[0].Err, gpu.ErrPermission) {
			t.Errorf("want GPU 0 unreadable for lack of rights:\n%s", conformance.Describe(node))
		}
	})
}

func succeed(t *testing.T, ret gonvml.Return) {
	t.Helper()
	if ret != gonvml.SUCCESS {
		t.Fatal(ret)
	}
}

func TestAGPUThatHangs(t *testing.T) {
	sim := simulate(t, "dgx1-v100")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	three := 3
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceGetMemoryInfo", GPU: &three, Hang: nvmlsim.Duration(time.Hour)}))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	node, err := l.Snapshot(ctx)
	must(t, err)
	u := others(t, node)
	if !errors.Is(u.Err, gpu.ErrTimeout) || u.Address == nil {
		t.Errorf("unreadable at %v for %v, want its address and %v", u.Address, u.Err, gpu.ErrTimeout)
	}
	// The next snapshot needs no deadline: the GPU is known to hang.
	require.Error(t, "the unreadable GPU", others(t, snapshot(t, l)).Err, gpu.ErrTimeout)
	require.Error(t, "Close below a call that hangs", l.Close(), gpu.ErrInUse)

	must(t, sim.ClearFaults())
	eventually(t, "the GPU is read again", func() bool { return len(snapshot(t, l).GPUs) == 8 })
	if err := l.Close(); err != nil {
		t.Errorf("Close once all calls have returned: %v", err)
	}
}

func TestADriverThatHangs(t *testing.T) {
	for _, method := range []string{"Init", "DeviceGetCount"} {
		t.Run(method, func(t *testing.T) {
			sim := simulate(t, "t4")
			must(t, sim.FailCalls(nvmlsim.CallFault{Method: method, Hang: nvmlsim.Duration(time.Hour)}))
			l := nvml.New(sim.NVML())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := l.Snapshot(ctx)
			require.Error(t, "Snapshot", err, gpu.ErrTimeout)
			must(t, sim.ClearFaults())
			eventually(t, "the driver answers again", func() bool {
				node, err := l.Snapshot(t.Context())
				return err == nil && len(node.GPUs) == 4
			})
		})
	}
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestSnapshotsAtTheSameTime(t *testing.T) {
	l := nvml.New(simulate(t, "dgx-h100").NVML())
	want := snapshot(t, l)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got, err := l.Snapshot(t.Context())
			if err != nil {
				t.Error(err)
			}
			require.Same(t, "snapshot", want, got)
		})
	}
	all.Wait()
}
