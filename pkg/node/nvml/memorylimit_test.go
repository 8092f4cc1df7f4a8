// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const gib = 1 << 30

// The first two GPUs of the model dgx-h100.
var firstH100, secondH100 = gpu.PCIAddress{Bus: 0x1b}, gpu.PCIAddress{Bus: 0x43}

// limiting is a node of the model with a driver that has memory limits, by the backend.
func limiting(t *testing.T, model, backend string) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	m.DriverVersion, m.CUDAVersion, m.MemoryLimits = "615.10", "13.4", backend
	return create(t, m)
}

// inCgroup is a process in the cgroup that computes with some memory.
func inCgroup(t *testing.T, folder string, bytes uint64) nvmlsim.Process {
	t.Helper()
	pid := cgrouptest.Process(t, folder)
	ids, err := cgroup.Ancestry(pid)
	must(t, err)
	return nvmlsim.Process{PID: pid, MemoryBytes: bytes, Cgroups: ids}
}

func TestAMemoryLimitIsOfAllProcessesInTheCgroup(t *testing.T) {
	container := cgrouptest.New(t)
	nested, other := cgrouptest.Child(t, container, "nested"), cgrouptest.New(t)
	sim := limiting(t, "dgx-h100", nvmlsim.MemoryLimitsDmem)
	l := nvml.New(sim.NVML())
	must(t, l.SetMemoryLimit(t.Context(), firstH100, container, 10*gib))

	must(t, sim.AddProcess(0, inCgroup(t, container, 6*gib)))
	must(t, sim.AddProcess(0, inCgroup(t, nested, 3*gib)))
	for _, folder := range []string{container, nested} {
		require.Error(t, "2 GiB more in "+folder, sim.AddProcess(0, inCgroup(t, folder, 2*gib)), simerr.ErrNoCapacity)
	}
	must(t, sim.AddProcess(0, inCgroup(t, other, 20*gib)))
	must(t, sim.AddProcess(1, inCgroup(t, container, 20*gib)))

	got, err := l.MemoryLimit(t.Context(), firstH100, container)
	if want := (gpu.MemoryLimit{Bytes: 10 * gib, UsedBytes: 9 * gib}); err != nil || got != want {
		t.Errorf("limit %+v, %v; want %+v", got, err, want)
	}
	must(t, l.SetMemoryLimit(t.Context(), firstH100, container, 12*gib))
	must(t, sim.AddProcess(0, inCgroup(t, container, 3*gib)))
	must(t, l.SetMemoryLimit(t.Context(), firstH100, container, gpu.NoMemoryLimit))
	must(t, sim.AddProcess(0, inCgroup(t, container, 20*gib)))
}

func TestACgroupWithoutAMemoryLimit(t *testing.T) {
	folder := cgrouptest.New(t)
	for _, backend := range []string{nvmlsim.MemoryLimitsDmem, nvmlsim.MemoryLimitsMisc} {
		l := nvml.New(limiting(t, "dgx-h100", backend).NVML())
		got, err := l.MemoryLimit(t.Context(), firstH100, folder)
		if want := (gpu.MemoryLimit{Bytes: gpu.NoMemoryLimit}); err != nil || got != want {
			t.Errorf("%s: limit %+v, %v; want %+v", backend, got, err, want)
		}
	}
}

// The cgroups above would keep a soft limit after the cgroup is removed.
func TestAMemoryLimitIsHard(t *testing.T) {
	sim := limiting(t, "dgx-h100", nvmlsim.MemoryLimitsDmem)
	must(t, nvml.New(sim.NVML()).SetMemoryLimit(t.Context(), firstH100, cgrouptest.New(t), gib))
	st, err := sim.State()
	must(t, err)
	for _, l := range st.GPUs[0].MemoryLimits {
		if l.SoftBytes != 0 {
			t.Errorf("the soft limit of cgroup %d is %d, want 0", l.ID, l.SoftBytes)
		}
	}
	if len(st.GPUs[0].MemoryLimits) == 0 {
		t.Error("no limit was set")
	}
}

// The driver would report the limit as the size of the GPU, and the agent publish it.
func TestAMemoryLimitOfTheOwnCgroupHidesTheGPU(t *testing.T) {
	own := cgrouptest.New(t)
	sim := limiting(t, "dgx-h100", nvmlsim.MemoryLimitsDmem)
	l := nvml.New(sim.NVML(), nvml.OwnCgroup(own))
	all := len(snapshot(t, l).GPUs)
	must(t, l.SetMemoryLimit(t.Context(), firstH100, own, 10*gib))
	node := snapshot(t, l)
	if len(node.GPUs) != all-1 || len(node.Unreadable) != 1 {
		t.Fatalf("%d of %d GPUs, %v do not answer; want one that does not", len(node.GPUs), all, node.Unreadable)
	}
	if bad := node.Unreadable[0]; *bad.Address != firstH100 || !errors.Is(bad.Err, gpu.ErrNotSupported) || !strings.Contains(bad.Err.Error(), own) {
		t.Errorf("got %v, want one that names the cgroup", bad.Problem())
	}
}

func TestMemoryLimitsThatTheDriverRefuses(t *testing.T) {
	folder := cgrouptest.New(t)
	sim := limiting(t, "dgx-h100", nvmlsim.MemoryLimitsDmem)
	l := nvml.New(sim.NVML())
	old := nvml.New(simulate(t, "dgx-h100").NVML())
	must(t, l.SetMIGMode(t.Context(), secondH100, true))
	for name, tc := range map[string]struct {
		library *nvml.Library
		address gpu.PCIAddress
		folder  string
		bytes   uint64
		want    error
	}{
		"more than the GPU has":        {l, firstH100, folder, 200 * gib, gpu.ErrInvalid},
		"a GPU in MIG mode":            {l, secondH100, folder, gib, gpu.ErrNotSupported},
		"a folder on a disk":           {l, firstH100, t.TempDir(), gib, gpu.ErrNotFound},
		"the root of the cgroups":      {l, firstH100, filepath.Dir(folder), gib, gpu.ErrNotFound},
		"a cgroup that does not exist": {l, firstH100, folder + "-gone", gib, gpu.ErrNotFound},
		"a GPU that does not exist":    {l, gpu.PCIAddress{Bus: 0xff}, folder, gib, gpu.ErrNotFound},
		"a driver without limits":      {old, firstH100, folder, gib, gpu.ErrNotSupported},
	} {
		require.Error(t, name, tc.library.SetMemoryLimit(t.Context(), tc.address, tc.folder, tc.bytes), tc.want)
	}
	_, err := old.MemoryLimit(t.Context(), firstH100, folder)
	require.Error(t, "read from a driver without limits", err, gpu.ErrNotSupported)
}
