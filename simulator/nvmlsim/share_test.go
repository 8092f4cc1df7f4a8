// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestTwoProcessesSeeOneNode(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	_, otherLib := another(t, s)
	mine, theirs := gpuHandle(t, lib, 2), gpuHandle(t, otherLib, 2)
	for range 50 {
		for _, mode := range []nvml.ComputeMode{nvml.COMPUTEMODE_PROHIBITED, nvml.COMPUTEMODE_DEFAULT} {
			if ret := mine.SetComputeMode(mode); ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
			if got := must[nvml.ComputeMode](t, "compute mode")(theirs.GetComputeMode()); got != mode {
				t.Fatalf("one process set %v, the other sees %v", mode, got)
			}
		}
	}
}

func TestNoChangeIsLostBetweenProcesses(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	other, _ := another(t, s)
	var wg sync.WaitGroup
	for worker, sim := range []*Sim{s, other, s, other} {
		wg.Go(func() {
			for i := range 25 {
				if err := sim.AddProcess(worker, Process{PID: 1 + i}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, sim := range []*Sim{s, other} {
		st, err := sim.State()
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range st.GPUs {
			if len(g.Processes) != 25 {
				t.Errorf("GPU %d has %d processes, want 25", i, len(g.Processes))
			}
		}
	}
}

func TestRestartFindsWhatTheLastProcessLeft(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	place(t, migOn(t, lib, 0), nvml.GPU_INSTANCE_PROFILE_2_SLICE, 2, 2)
	_, lib = another(t, s)
	instances := must[[]nvml.GpuInstance](t, "instances")(gpuHandle(t, lib, 0).GetGpuInstances(profileInfo(t, gpuHandle(t, lib, 0), nvml.GPU_INSTANCE_PROFILE_2_SLICE)))
	if len(instances) != 1 {
		t.Fatalf("%d instances after a restart, want 1", len(instances))
	}
	if info := must[nvml.GpuInstanceInfo](t, "info")(instances[0].GetInfo()); info.Placement.Start != 2 {
		t.Errorf("placement %v", info.Placement)
	}
}

func TestOpenAndCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	load := func(name string) *Model {
		m, err := LoadModel(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := Open(dir); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("open nothing: %v", err)
	}
	s, err := OpenOrCreate(dir, load("t4"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.LoseGPU(1); err != nil {
		t.Fatal(err)
	}
	again, err := OpenOrCreate(dir, load("t4"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := again.State(); err != nil || !st.GPUs[1].Lost {
		t.Errorf("the node was made anew: %v, %v", st, err)
	}
	if _, err := Create(dir, load("t4")); !errors.Is(err, simerr.ErrInUse) {
		t.Errorf("create over a node: %v", err)
	}
	_, err = OpenOrCreate(dir, load("l40s"))
	if !errors.Is(err, simerr.ErrInUse) || !strings.Contains(err.Error(), "simulated t4") || !strings.Contains(err.Error(), "l40s") {
		t.Errorf("another model: %v", err)
	}
	if err := s.Destroy(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if _, err := Open(dir); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("open after destroy: %v", err)
	}
	if _, err := OpenOrCreate(dir, load("l40s")); err != nil {
		t.Errorf("another model after destroy: %v", err)
	}
}

func TestANodeLeavesTheFilesOfOthers(t *testing.T) {
	m, err := LoadModel("t4")
	if err != nil {
		t.Fatal(err)
	}
	keep := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	system := t.TempDir()
	program := keep(filepath.Join(system, "usr/bin/program"))
	if _, err := Create(system, m); !errors.Is(err, simerr.ErrInUse) || !strings.Contains(err.Error(), "folder usr") {
		t.Errorf("create in a root file system: %v", err)
	}
	root := t.TempDir()
	note, data := keep(filepath.Join(root, "note")), keep(filepath.Join(root, "var/lib/other/data"))
	s, err := Create(root, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Destroy(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{program, note, data} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyOneOfManyMakesTheNode(t *testing.T) {
	dir := t.TempDir()
	m, err := LoadModel("t4")
	if err != nil {
		t.Fatal(err)
	}
	boots := make(chan string, 6)
	var wg sync.WaitGroup
	for range cap(boots) {
		wg.Go(func() {
			s, err := OpenOrCreate(dir, m)
			if err != nil {
				t.Error(err)
				return
			}
			st, err := s.State()
			if err != nil {
				t.Error(err)
				return
			}
			boots <- st.BootID
		})
	}
	wg.Wait()
	close(boots)
	seen := map[string]bool{}
	for id := range boots {
		seen[id] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d nodes were made", len(seen))
	}
}

func TestDamagedStateIsReported(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	for name, content := range map[string]string{"not JSON": "{", "of another machine": `{"gpus":[{}]}`} {
		if err := os.WriteFile(s.stateFile(), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(s.root); !errors.Is(err, simerr.ErrCorrupt) || !strings.Contains(err.Error(), s.stateFile()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withoutRights runs f as a user who may only read.
func withoutRights(t *testing.T, s *Sim, f func()) {
	t.Helper()
	// Others may not look into what t.TempDir makes.
	for path, mode := range map[string]os.FileMode{filepath.Dir(s.root): 0o755, s.root: 0o755, s.dir: 0o555, filepath.Join(s.dir, "lock"): 0o444} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := os.Chmod(s.dir, 0o755); err != nil {
			t.Error(err)
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread keeps the other user, so it must not be used again.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		f()
	}()
	<-done
}

func TestReadersMayNotChangeTheNode(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	d := gpuHandle(t, lib, 0)
	withoutRights(t, s, func() {
		if ret := d.SetComputeMode(nvml.COMPUTEMODE_PROHIBITED); ret != nvml.ERROR_NO_PERMISSION {
			t.Errorf("set the compute mode: %v", ret)
		}
		if _, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.ERROR_NO_PERMISSION {
			t.Errorf("set MIG mode: %v", ret)
		}
		if err := s.LoseGPU(0); !errors.Is(err, simerr.ErrPermission) {
			t.Errorf("break a GPU: %v", err)
		}
		if _, ret := d.GetUUID(); ret != nvml.SUCCESS {
			t.Errorf("read: %v", ret)
		}
	})
}

func TestRebootForgetsWhatHardwareForgets(t *testing.T) {
	s, lib := newTestSim(t, "dgx-a100")
	bootID := func() string {
		data, err := os.ReadFile(filepath.Join(s.Root(), "proc/sys/kernel/random/boot_id"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	before := bootID()
	d := gpuHandle(t, lib, 0)
	succeed(t, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	succeed(t, d.SetPersistenceMode(nvml.FEATURE_DISABLED))
	succeed(t, d.SetEccMode(nvml.FEATURE_DISABLED))
	for _, err := range []error{
		s.AddProcess(0, Process{PID: 1}), s.LoseGPU(1), s.LinkDown(2, 0), s.FailECC(3),
		s.FailCalls(CallFault{Method: "DeviceGetCount", Return: nvml.ERROR_UNKNOWN}),
		s.Reboot(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	if after := bootID(); after == before || after != st.BootID {
		t.Errorf("boot ID %s before, %s after, %s in the state", before, after, st.BootID)
	}
	if len(st.Events) > 0 || len(st.CallFaults) > 0 {
		t.Errorf("events and faults outlive a reboot: %v", st)
	}
	for i, g := range st.GPUs {
		if g.Lost || len(g.LinksDown) > 0 || g.ECCErrors > 0 || len(g.Processes) > 0 || g.ComputeMode != "Default" || !*g.Persistence {
			t.Errorf("GPU %d after a reboot: %+v", i, g)
		}
	}
	if now, pending, _ := gpuHandle(t, lib, 0).GetEccMode(); now != nvml.FEATURE_DISABLED || pending != nvml.FEATURE_DISABLED {
		t.Errorf("the ECC mode set for the next boot did not come: %v, %v", now, pending)
	}
}
