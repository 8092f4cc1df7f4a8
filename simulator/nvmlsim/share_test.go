// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

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
		noError(t, err)
		for i, g := range st.GPUs {
			if len(g.Processes) != 25 {
				t.Errorf("GPU %d has %d processes, want 25", i, len(g.Processes))
			}
		}
	}
}

func TestOpenAndCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	load := func(name string) *Model {
		m, err := LoadModel(name)
		noError(t, err)
		return m
	}
	if _, err := Open(dir); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("open nothing: %v", err)
	}
	s, err := OpenOrCreate(dir, load("t4"))
	noError(t, err)
	noError(t, s.LoseGPU(1))
	again, err := OpenOrCreate(dir, load("t4"))
	noError(t, err)
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
	noError(t, s.Destroy())
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
	noError(t, err)
	keep := func(path string) string {
		t.Helper()
		noError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		noError(t, os.WriteFile(path, nil, 0o644))
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
	noError(t, err)
	if err := s.Destroy(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{program, note, data} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestRebootForgetsWhatHardwareForgets(t *testing.T) {
	s, lib := newTestSim(t, "dgx-a100")
	bootID := func() string {
		data, err := os.ReadFile(filepath.Join(s.Root(), "proc/sys/kernel/random/boot_id"))
		noError(t, err)
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
		noError(t, err)
	}
	st, err := s.State()
	noError(t, err)
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
