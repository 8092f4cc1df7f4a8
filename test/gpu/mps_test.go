package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps"
	"github.com/gpu-dra/gpu-dra-driver/test/gpu/cuda"
)

// The ceilings of the daemon, and what a client sets for itself. They are small
// beside any GPU, so that enforcement that fails takes little of it.
const (
	mpsCeiling     = 2 << 30
	mpsLimit       = 1 << 30
	mpsStep        = 16 << 20
	mpsMost        = 3 << 30
	mpsOutOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY
)

// checkMPS lets the supervisor run a control daemon on an idle device, and
// clients find out how much memory they get. It changes no setting of a GPU.
func checkMPS(t *testing.T, m *machine) {
	targets, why := m.mpsTargets(t)
	if len(targets) == 0 {
		t.Skipf("NOT RUN, and so nothing is known of MPS here: %s", why)
	}
	before, err := m.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) { checkMPSOn(t, m, target) })
	}
	after, err := m.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Describe(before), Describe(after)); diff != "" {
		t.Errorf("MPS has changed the machine (-before +after):\n%s", diff)
	}
}

// mpsTargets are a whole GPU and a MIG device, where there are such that
// nobody uses, or why there are none.
func (m *machine) mpsTargets(t *testing.T) (targets []gpu.MPSDaemon, why string) {
	t.Helper()
	if _, err := m.driverRoot.Find("nvidia-cuda-mps-control", os.Stat); err != nil {
		return nil, err.Error()
	}
	why = "there is no GPU of Volta or newer"
	found := map[gpu.Kind]bool{}
	add := func(name gpu.DeviceName, uuid string) {
		if !found[name.Kind] {
			targets = append(targets, gpu.MPSDaemon{Name: name.String(), Devices: []string{uuid}, ThreadPercentage: 50, MemoryLimits: []uint64{mpsCeiling}})
		}
		found[name.Kind] = true
	}
	for _, g := range m.node.GPUs {
		if !g.MPSLimits() {
			continue
		}
		processes, err := m.library.Processes(t.Context(), g.UUID)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(processes) > 0:
			why = fmt.Sprintf("%s is in use", g.Address)
		case g.ComputeMode == gpu.ComputeModeProhibited:
			why = fmt.Sprintf("the compute mode of %s is %s", g.Address, g.ComputeMode)
		case !g.MIG.Enabled:
			add(gpu.DeviceName{Kind: gpu.KindGPU, Address: g.Address}, g.UUID)
		case len(g.MIG.Partitions) == 0:
			why = fmt.Sprintf("MIG is on at %s, and it has no MIG device", g.Address)
		default:
			p := g.MIG.Partitions[0]
			add(gpu.DeviceName{Kind: gpu.KindMIG, Address: g.Address, Profile: p.Profile, Start: p.Placement.Start}, p.UUID)
		}
	}
	return targets, why
}

func checkMPSOn(t *testing.T, m *machine, want gpu.MPSDaemon) {
	supervisor := m.supervisor(t)
	t.Cleanup(func() {
		if err := supervisor.StopMPS(context.WithoutCancel(t.Context()), want.Name); err != nil {
			t.Error(err)
		}
	})
	dirs, err := supervisor.EnsureMPS(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	started := onlyDaemon(t, supervisor)
	if diff := cmp.Diff(gpu.MPSStatus{Daemon: want, State: gpu.MPSReady, PID: started.PID}, started); diff != "" || started.PID == 0 {
		t.Errorf("daemon %d after its start (-want +got):\n%s", started.PID, diff)
	}

	for _, c := range []struct {
		name        string
		environment []string
		limit       uint64
	}{
		{"a client with limits of its own", []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"}, mpsLimit},
		{"a client that drops the variables", nil, mpsCeiling},
		{"a client that sets more than the daemon's ceiling", []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M"}, mpsCeiling},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := m.runClient(t, dirs, c.environment)
			t.Logf("%s with %d multiprocessors: %d MiB free, %d MiB taken of %d MiB", got.Name, got.Multiprocessors, got.FreeBytes>>20, got.TakenBytes>>20, c.limit>>20)
			if got.Refusal != mpsOutOfMemory || got.TakenBytes > c.limit {
				t.Errorf("got %d MiB and then CUDA error %d, want no more than %d MiB and then error %d", got.TakenBytes>>20, got.Refusal, c.limit>>20, mpsOutOfMemory)
			}
			if got.TakenBytes < c.limit/2 {
				t.Errorf("got %d MiB: a context does not cost half of %d MiB", got.TakenBytes>>20, c.limit>>20)
			}
		})
	}

	servers := onlyDaemon(t, supervisor).Servers
	if len(servers) == 0 || servers[0].PID == 0 || servers[0].State == "" {
		t.Errorf("servers after clients have come: %+v", servers)
	}
	t.Logf("servers: %+v", servers)

	if err := supervisor.StopMPS(t.Context(), want.Name); err != nil {
		t.Fatal(err)
	}
	if left, err := supervisor.MPSDaemons(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("after the stop: %+v, %v", left, err)
	}
	processes := []int{started.PID}
	for _, s := range servers {
		processes = append(processes, s.PID)
	}
	for _, pid := range processes {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is there after the stop: %v", pid, err)
		}
	}
	if _, err := os.Stat(dirs.Pipe); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the daemon's folder is there after the stop: %v", err)
	}
}

func TestMPSOnASimulatedMIGDevice(t *testing.T) {
	m := simulate(t, load(t, "dgx-h100"))
	address, profile := m.node.GPUs[0].Address, gpu.Profile{Slices: 1, MemoryGB: 10}
	if err := m.library.SetMIGMode(t.Context(), address, true); err != nil {
		t.Fatal(err)
	}
	if _, err := m.library.CreatePartition(t.Context(), address, profile, 3); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.node, err = m.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	targets, _ := m.mpsTargets(t)
	name := gpu.DeviceName{Kind: gpu.KindMIG, Address: address, Profile: profile, Start: 3}.String()
	i := slices.IndexFunc(targets, func(d gpu.MPSDaemon) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("%s is not among %+v", name, targets)
	}
	checkMPSOn(t, m, targets[i])
}

func TestWithoutAControlDaemonNothingIsSaidOfMPS(t *testing.T) {
	m := simulate(t, load(t, "t4"))
	m.driverRoot = gpu.DriverRoot(t.TempDir())
	if targets, why := m.mpsTargets(t); len(targets) > 0 || !strings.Contains(why, "usr/bin/nvidia-cuda-mps-control") {
		t.Errorf("got %+v, %q", targets, why)
	}
}

// supervisor runs until the test ends. Without root, daemons and clients share
// /dev/shm with the machine.
func (m *machine) supervisor(t *testing.T) *mps.Supervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps-") //nolint:usetesting // the path of a unix socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// Servers have the user of their client.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(dir, "log")
	s, err := mps.New(context.WithoutCancel(t.Context()), mps.Options{
		Driver:       m.driverRoot,
		RunDir:       filepath.Join(dir, "run"),
		LogDir:       logs,
		HostShm:      os.Geteuid() != 0,
		StartTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			printLogs(t, logs)
		}
	})
	return s
}

// printLogs shows what a daemon had to say.
func printLogs(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		t.Logf("%s: %v\n%s", filepath.Base(file), err, text)
	}
}

func onlyDaemon(t *testing.T, supervisor *mps.Supervisor) gpu.MPSStatus {
	t.Helper()
	daemons, err := supervisor.MPSDaemons(t.Context())
	if err != nil || len(daemons) != 1 {
		t.Fatalf("got %+v, %v, want one daemon", daemons, err)
	}
	return daemons[0]
}

// runClient runs this binary as a client of the daemon in these folders.
func (m *machine) runClient(t *testing.T, dirs gpu.MPSDirs, environment []string) cuda.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0])
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CUDA_") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, m.driverRoot.Environment()...)
	c.Env = append(c.Env, environment...)
	c.Env = append(c.Env, "CUDA_MPS_PIPE_DIRECTORY="+dirs.Pipe, clientVariable+"="+m.client)
	if dirs.Shm != hostShm {
		c.Env = append(c.Env, shmVariable+"="+dirs.Shm)
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	var problem strings.Builder
	c.Stderr = &problem
	out, err := c.Output()
	if err != nil {
		t.Fatalf("client: %v: %s", err, problem.String())
	}
	var report cuda.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("client: %v: %q", err, out)
	}
	return report
}
