// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// running starts a process that ends with the test, or with end.
func running(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read _")
	stdin, err := cmd.StdinPipe()
	noError(t, err)
	noError(t, cmd.Start())
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_, _ = io.WriteString(stdin, "\n")
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// listed are the PIDs that NVML lists on a GPU.
func listed(t *testing.T, lib nvml.Interface, index int) []uint32 {
	t.Helper()
	var pids []uint32
	for _, p := range must[[]nvml.ProcessInfo](t, "processes")(gpuHandle(t, lib, index).GetComputeRunningProcesses()) {
		pids = append(pids, p.Pid)
	}
	return pids
}

func TestAFollowedProcessLeavesTheGPUWhenItEnds(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	other, lib := another(t, s)
	pid, end := running(t)
	followed := make(chan error, 1)
	go func() { followed <- s.FollowProcess(t.Context(), 1, Process{PID: pid, MemoryBytes: 1 << 20}) }()
	noError(t, other.waitUntil(farAway(), func(st *State) bool { return len(st.GPUs[1].Processes) == 1 }))
	if diff := cmp.Diff([]uint32{uint32(pid)}, listed(t, lib, 1)); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	end()
	noError(t, <-followed)
	if got := listed(t, lib, 1); got != nil {
		t.Errorf("after its end: %v", got)
	}
}

func TestAProcessThatHasEndedCannotBeFollowed(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	pid, end := running(t)
	end()
	if err := s.FollowProcess(t.Context(), 1, Process{PID: pid}); !errors.Is(err, simerr.ErrNotFound) {
		t.Errorf("error %v, want %v", err, simerr.ErrNotFound)
	}
}

func TestClientsOfMPSAreListedAsSuchAndAsComputing(t *testing.T) {
	s, lib := newTestSim(t, "t4")
	end, err := s.RegisterMPSDaemon("a", nil)
	noError(t, err)
	defer end()
	memory := map[string]uint64{s.node.gpus[0].uuid: 1 << 20}
	noError(t, s.AddProcess(0, Process{PID: 5}))
	server := MPSServer{PID: 7, Daemon: "a", Memory: memory, Clients: []MPSClient{{PID: 8, Memory: memory}, {PID: 9, Memory: memory}}}
	noError(t, s.SetMPSServer(server))
	if diff := cmp.Diff([]uint32{5, 7, 8, 9}, listed(t, lib, 0)); diff != "" {
		t.Errorf("computing (-want +got):\n%s", diff)
	}
	var clients []uint32
	for _, p := range must[[]nvml.ProcessInfo](t, "MPS processes")(gpuHandle(t, lib, 0).GetMPSComputeRunningProcesses()) {
		clients = append(clients, p.Pid)
	}
	if diff := cmp.Diff([]uint32{8, 9}, clients); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	noError(t, s.RemoveMPSServer("a", ""))
	if diff := cmp.Diff([]uint32{5}, listed(t, lib, 0)); diff != "" {
		t.Errorf("without the server (-want +got):\n%s", diff)
	}
}

func TestAnExclusiveGPUIsOfOneProcessOrOneMPSServer(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	uuid := s.node.gpus[0].uuid
	memory := map[string]uint64{uuid: 1 << 20}
	for _, name := range []string{"a", "b"} {
		end, err := s.RegisterMPSDaemon(name, nil)
		noError(t, err)
		defer end()
	}
	server := func(name string, pid int, clients ...int) error {
		m := MPSServer{PID: pid, Daemon: name, Memory: memory}
		for _, c := range clients {
			m.Clients = append(m.Clients, MPSClient{PID: c, Memory: memory})
		}
		return s.SetMPSServer(m)
	}
	setMode := func(mode ComputeMode) error { return s.SetComputeMode(0, mode) }
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"a process computes", func() error { return s.AddProcess(0, Process{PID: 5}) }, nil},
		{"the GPU becomes exclusive", func() error { return setMode(ComputeModeExclusiveProcess) }, nil},
		{"an MPS server starts while a process has the GPU", func() error { return server("a", 7) }, simerr.ErrInUse},
		{"the process ends", func() error { return s.RemoveProcess(5) }, nil},
		{"the MPS server starts", func() error { return server("a", 7) }, nil},
		{"clients of it", func() error { return server("a", 7, 8, 9) }, nil},
		{"a process that ignores MPS", func() error { return s.AddProcess(0, Process{PID: 10}) }, simerr.ErrInUse},
		{"a client that ignores MPS", func() error { return s.AddProcess(0, Process{PID: 8}) }, simerr.ErrInUse},
		{"a second MPS server", func() error { return server("b", 11) }, simerr.ErrInUse},
		{"the GPU is prohibited", func() error { return setMode(ComputeModeProhibited) }, nil},
		{"the clients stay", func() error { return server("a", 7, 8, 9) }, nil},
		{"one more client", func() error { return server("a", 7, 8, 9, 12) }, simerr.ErrInUse},
		{"the GPU is open again", func() error { return setMode(ComputeModeDefault) }, nil},
		{"a process without the server", func() error { return s.AddProcess(0, Process{PID: 10}) }, nil},
		{"the GPU becomes exclusive again", func() error { return setMode(ComputeModeExclusiveProcess) }, nil},
		{"one more client of the server that has a context", func() error { return server("a", 7, 8, 9, 12) }, nil},
	} {
		if err := step.do(); !errors.Is(err, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, err, step.want)
		}
	}
}
