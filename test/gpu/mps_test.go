// SPDX-License-Identifier: Apache-2.0

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
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/test/gpu/cuda"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const mpsOutOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

// mpsTarget is a daemon to start, and what its clients try, in bytes.
type mpsTarget struct {
	gpu.MPSDaemon
	// ceiling of the daemon, and the limit that a client sets for itself.
	ceiling, limit uint64
	// Clients take memory in steps until they are refused or have the most.
	step, most uint64
}

// newMPSTarget chooses the limits for a device by its memory; ok is false if that is too
// small. MPS may count a client's context against its limit, and an empty context takes
// more than half a GiB on the largest GPUs. The limit is several times that, except on
// small GPUs. If limits are not enforced, the test still leaves a quarter of the
// device's memory free.
func newMPSTarget(name, uuid string, memory uint64) (target mpsTarget, ok bool) {
	const whole, most, least = 256 << 20, 8 << 30, 3 << 30
	if memory < least {
		return mpsTarget{}, false
	}
	ceiling := min(most, memory/2/whole*whole)
	return mpsTarget{
		MPSDaemon: gpu.MPSDaemon{Name: name, Devices: []string{uuid}, ThreadPercentage: 50, MemoryLimits: []uint64{ceiling}},
		ceiling:   ceiling, limit: ceiling / 2, step: ceiling / 128, most: ceiling * 3 / 2,
	}, true
}

// checkMPS lets the supervisor run a control daemon on an idle device. Clients find
// out how much memory they get. It changes no setting of a GPU.
func checkMPS(t *testing.T, m *machine) {
	targets, why := m.mpsTargets(t)
	if len(targets) == 0 {
		t.Skipf("NOT RUN, and so nothing is known of MPS here: %s", why)
	}
	m.unchanged(t, "MPS", func() {
		for _, target := range targets {
			t.Run(target.Name, func(t *testing.T) { checkMPSOn(t, m, target) })
		}
	})
}

// unchanged fails the test if what it does changes the machine.
func (m *machine) unchanged(t *testing.T, what string, do func()) {
	t.Helper()
	before, err := m.snapshot(t.Context())
	must(t, err)
	do()
	after, err := m.snapshot(t.Context())
	must(t, err)
	require.Same(t, "the machine before and after "+what, Describe(before), Describe(after))
}

// mpsTargets returns an idle GPU and an idle MIG device, if the machine has them. If it
// has neither, mpsTargets returns the reason.
func (m *machine) mpsTargets(t *testing.T) (targets []mpsTarget, why string) {
	t.Helper()
	if _, err := m.driverRoot.Find("nvidia-cuda-mps-control", os.Stat); err != nil {
		return nil, err.Error()
	}
	why = "there is no GPU of Volta or newer"
	found := map[kind.Kind]bool{}
	add := func(name kind.Name, uuid string, memory uint64) {
		target, ok := newMPSTarget(name.String(), uuid, memory)
		switch {
		case !ok:
			why = fmt.Sprintf("%s has %d MiB of memory, too little for a context and a limit", name, memory>>20)
		case !found[name.Kind]:
			targets = append(targets, target)
			found[name.Kind] = true
		}
	}
	for _, g := range m.node.GPUs {
		if !g.MPSLimits() {
			continue
		}
		processes, err := m.library.Processes(t.Context(), g.Address)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(processes) > 0:
			why = fmt.Sprintf("%s is in use", g.Address)
		case g.ComputeMode == gpu.ComputeModeProhibited:
			why = fmt.Sprintf("the compute mode of %s is %s", g.Address, g.ComputeMode)
		case !g.MIG.Enabled:
			add(kind.Whole(g.Address), g.UUID, g.MemoryBytes)
		case len(g.MIG.Partitions) == 0:
			why = fmt.Sprintf("MIG is on at %s, and it has no MIG device", g.Address)
		default:
			p := g.MIG.Partitions[0]
			add(kind.Partition(g.Address, p.Profile, p.Placement.Start), p.UUID, memoryOf(g, p.Profile))
		}
	}
	return targets, why
}

// memoryOf is what a MIG device of a profile has.
func memoryOf(g gpu.GPU, profile gpu.Profile) uint64 {
	i := slices.IndexFunc(g.MIG.Profiles, func(p gpu.ProfileInfo) bool { return p.Profile == profile })
	if i < 0 {
		return 0
	}
	return g.MIG.Profiles[i].MemoryBytes
}

func checkMPSOn(t *testing.T, m *machine, want mpsTarget) {
	supervisor, dirs := m.startMPS(t, want.MPSDaemon)
	started := onlyDaemon(t, supervisor)
	if diff := cmp.Diff(gpu.MPSStatus{Daemon: want.MPSDaemon, State: gpu.MPSReady, PID: started.PID}, started); diff != "" || started.PID == 0 {
		t.Errorf("daemon %d after its start (-want +got):\n%s", started.PID, diff)
	}

	for _, c := range []struct {
		name        string
		environment []string
		limit       uint64
	}{
		{"a client with limits of its own", []string{memoryLimit(want.limit), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"}, want.limit},
		{"a client that drops the variables", nil, want.ceiling},
		{"a client that sets more than the daemon's ceiling", []string{memoryLimit(2 * want.ceiling)}, want.ceiling},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := m.runClient(t, dirs, want, c.environment)
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

	must(t, supervisor.StopMPS(t.Context(), want.Name))
	if left, err := supervisor.MPSDaemons(t.Context(), true); err != nil || len(left) > 0 {
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

// memoryLimit of a client on its first device.
func memoryLimit(bytes uint64) string {
	return fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", bytes>>20)
}

func TestMPSOnASimulatedMIGDevice(t *testing.T) {
	standInOnly(t)
	m := simulate(t, load(t, "dgx-h100"))
	address, profile := m.node.GPUs[0].Address, gpu.Profile{Slices: 1, MemoryGB: 10}
	must(t, m.library.SetMIGMode(t.Context(), address, true))
	if _, err := m.library.CreatePartition(t.Context(), address, profile, 3); err != nil {
		t.Fatal(err)
	}
	var err error
	m.node, err = m.snapshot(t.Context())
	must(t, err)
	targets, _ := m.mpsTargets(t)
	name := kind.Partition(address, profile, 3).String()
	i := slices.IndexFunc(targets, func(d mpsTarget) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("%s is not among %+v", name, targets)
	}
	checkMPSOn(t, m, targets[i])
}

func TestMPSHasNoTargetsWithoutAControlDaemon(t *testing.T) {
	m := simulate(t, load(t, "t4"))
	m.driverRoot = gpu.DriverRoot(t.TempDir())
	if targets, why := m.mpsTargets(t); len(targets) > 0 || !strings.Contains(why, "find nvidia-cuda-mps-control") {
		t.Errorf("got %+v, %q", targets, why)
	}
	if got, ok := newMPSTarget("gpu-1a-00", "GPU-1", 2<<30); ok {
		t.Errorf("a GPU with 2 GiB: got %+v, want none", got)
	}
}

// startMPS starts a daemon, which runs until the test ends or stops it. The daemon has
// its own /dev/shm. If that is not permitted, as in most containers, daemon and clients
// share the machine's.
func (m *machine) startMPS(t *testing.T, want gpu.MPSDaemon) (*supervisor.Supervisor, gpu.MPSDirs) {
	t.Helper()
	supervisor := m.supervisor(t, false)
	dirs, err := supervisor.EnsureMPS(t.Context(), want)
	if errors.Is(err, gpu.ErrPermission) {
		t.Logf("a /dev/shm for the daemon alone is NOT CHECKED, the machine's serves instead: %v", err)
		supervisor = m.supervisor(t, true)
		dirs, err = supervisor.EnsureMPS(t.Context(), want)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := supervisor.StopMPS(context.WithoutCancel(t.Context()), want.Name); err != nil {
			t.Error(err)
		}
	})
	return supervisor, dirs
}

// supervisor runs until the test ends.
func (m *machine) supervisor(t *testing.T, hostShm bool) *supervisor.Supervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps-") //nolint:usetesting // the path of a unix socket has 107 bytes at most
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// Servers have the user of their client.
	must(t, os.Chmod(dir, 0o711))
	logs := filepath.Join(dir, "log")
	s, err := supervisor.New(context.WithoutCancel(t.Context()), supervisor.Options{
		Driver:       m.driverRoot,
		RunDir:       filepath.Join(dir, "run"),
		LogDir:       logs,
		HostShm:      hostShm,
		StartTimeout: patience,
	})
	must(t, err)
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

func onlyDaemon(t *testing.T, supervisor *supervisor.Supervisor) gpu.MPSStatus {
	t.Helper()
	daemons, err := supervisor.MPSDaemons(t.Context(), true)
	if err != nil || len(daemons) != 1 {
		t.Fatalf("got %+v, %v, want one daemon", daemons, err)
	}
	return daemons[0]
}

// runClient runs this binary as a client of the daemon in these folders.
func (m *machine) runClient(t *testing.T, dirs gpu.MPSDirs, target mpsTarget, environment []string) cuda.Report {
	t.Helper()
	environment = append(slices.Clone(environment), "CUDA_MPS_PIPE_DIRECTORY="+dirs.Pipe, clientVariable+"="+m.client)
	attributes := &syscall.SysProcAttr{}
	if dirs.Shm != hostShm {
		environment = append(environment, shmVariable+"="+dirs.Shm)
		attributes.Unshareflags = syscall.CLONE_NEWNS
	}
	return m.run(t, target, attributes, environment...)
}

// run runs this binary as a process that computes on the target.
func (m *machine) run(t *testing.T, target mpsTarget, attributes *syscall.SysProcAttr, environment ...string) cuda.Report {
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
	c.Env = append(c.Env, fmt.Sprintf("%s=%d", stepVariable, target.step), fmt.Sprintf("%s=%d", mostVariable, target.most))
	c.SysProcAttr = attributes
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
