// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var shareOfA = gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{uuidA}, ThreadPercentage: 25, MemoryLimits: []uint64{20 * gib}}

func TestADaemonHasItsDevicesAndCeilingsBeforeTheCallReturns(t *testing.T) {
	w := newWorld(t)
	w.start()
	dirs := w.ensure(gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{uuidA, uuidB}, ThreadPercentage: 50, MemoryLimits: []uint64{20 * gib, 10 * gib}})
	want := []string{
		"start -f on " + uuidA + "," + uuidB,
		"set_default_active_thread_percentage 50",
		"set_default_device_pinned_mem_limit 0 20480M",
		"set_default_device_pinned_mem_limit 1 10240M",
	}
	require.Same(t, "commands", want, w.commands("gpu-1a-00"))
	require.Same(t, "folders", gpu.MPSDirs{Pipe: w.options.RunDir + "/daemons/gpu-1a-00/pipe", Shm: "/dev/shm"}, dirs)
	if s := w.daemon(); s.State != gpu.MPSReady || s.PID == 0 || s.Problem != "" {
		t.Errorf("daemon %+v, want it ready", s)
	}
}

func TestADaemonWithoutCeilingsReceivesNone(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{uuidA}})
	require.Same(t, "commands", []string{"start -f on " + uuidA}, w.commands("gpu-1a-00"))
}

func TestOneServerForAllUsersIsTheAdministratorsChoice(t *testing.T) {
	w := newWorld(t)
	for _, chosen := range []bool{false, true} {
		w.options.MultiUser = chosen
		w.start()
		if multiUser, err := w.client.MultiUser(t.Context()); err != nil || multiUser != chosen {
			t.Errorf("the client receives %t, %v, want %t", multiUser, err, chosen)
		}
		if !chosen {
			w.stop()
		}
	}
	w.ensure(gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{uuidA}})
	require.Same(t, "commands", []string{"start -f -M on " + uuidA}, w.commands("gpu-1a-00"))
}

func TestTheSameAgainSendsNoCommand(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	pid := w.daemon().PID
	// It could not answer any command.
	w.fault("hung")
	w.ensure(shareOfA)
	w.mend("hung")
	if got := w.daemon().PID; got != pid {
		t.Errorf("PID %d, want the same as before, %d", got, pid)
	}
}

func TestHigherCeilingsReachFutureServersAndNewClientsOfTheRunningOne(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	pid := w.daemon().PID
	w.fault("server")
	larger := shareOfA
	larger.ThreadPercentage, larger.MemoryLimits = 50, []uint64{40 * gib}
	w.ensure(larger)
	without := larger
	without.ThreadPercentage, without.MemoryLimits = 0, nil
	w.ensure(without)
	want := []string{
		"set_default_active_thread_percentage 50",
		"set_default_device_pinned_mem_limit 0 40960M",
		"set_active_thread_percentage 4711 50",
		"set_device_pinned_mem_limit 4711 0 40960M",
		// There is no command that takes a limit away.
		"set_default_active_thread_percentage 100",
		"set_default_device_pinned_mem_limit 0 1048576M",
		"set_active_thread_percentage 4711 100",
		"set_device_pinned_mem_limit 4711 0 1048576M",
	}
	require.Same(t, "commands", want, w.commands("gpu-1a-00")[3:])
	s := w.daemon()
	if s.PID != pid {
		t.Errorf("PID %d, want the same as before, %d", s.PID, pid)
	}
	require.Same(t, "servers", []gpu.MPSServer{{PID: 4711, State: "ACTIVE", Clients: 2}}, s.Servers)
}

func TestADaemonIsRefused(t *testing.T) {
	w := newWorld(t)
	w.start()
	for name, d := range map[string]gpu.MPSDaemon{
		"without a name":               {Devices: []string{uuidA}},
		"with a path for a name":       {Name: "../../etc", Devices: []string{uuidA}},
		"of time slices":               {Name: "gpu-1a-00-ts", Devices: []string{uuidA}},
		"of all GPUs":                  {Name: "node-gpus", Devices: []string{uuidA}},
		"without devices":              {Name: "gpu-1a-00"},
		"with an index for a device":   {Name: "gpu-1a-00", Devices: []string{"0"}},
		"with a variable in a UUID":    {Name: "gpu-1a-00", Devices: []string{uuidA + "\nLD_PRELOAD=/x"}},
		"with two UUIDs in one":        {Name: "gpu-1a-00", Devices: []string{uuidA + "," + uuidB}},
		"with more than all threads":   {Name: "gpu-1a-00", Devices: []string{uuidA}, ThreadPercentage: 101},
		"with fewer than no threads":   {Name: "gpu-1a-00", Devices: []string{uuidA}, ThreadPercentage: -1},
		"with limits for other GPUs":   {Name: "gpu-1a-00", Devices: []string{uuidA}, MemoryLimits: []uint64{gib, gib}},
		"with a limit of half a mebib": {Name: "gpu-1a-00", Devices: []string{uuidA}, MemoryLimits: []uint64{gib + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), d)), gpu.ErrInvalid)
		})
	}
	require.Error(t, "stop of a path", w.client.StopMPS(t.Context(), "../.."), gpu.ErrInvalid)
	if got := w.left(); got != nil {
		t.Errorf("folders %q are left, want none", got)
	}
}

func TestADaemonDoesNotMoveToOtherDevices(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	moved := shareOfA
	moved.Devices = []string{uuidB}
	require.Error(t, "error", errOf(w.client.EnsureMPS(t.Context(), moved)), gpu.ErrInUse)
	require.Same(t, "daemon", shareOfA, w.daemon().Daemon)
}

func TestADaemonThatDoesNotComeUpSaysWhyAndLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		fault string
		is    error
		says  string
	}{
		"it ends":             {"dead", gpu.ErrNotReady, "no CUDA-capable device is detected"},
		"it opens no socket":  {"deaf", gpu.ErrTimeout, "does not answer within 1s"},
		"it never answers":    {"hung", gpu.ErrTimeout, "does not answer within 1s"},
		"it refuses a limit":  {"refuse", gpu.ErrNotSupported, "Invalid value"},
		"there is no program": {"", gpu.ErrNotReady, "--driver-root"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.options.StartTimeout = time.Second
			if tc.fault == "" {
				must(t, os.Remove(w.options.Driver.Binaries("nvidia-cuda-mps-control")[0]))
			} else {
				w.fault(tc.fault)
			}
			w.start()
			_, err := w.client.EnsureMPS(t.Context(), shareOfA)
			require.Error(t, "EnsureMPS", err, tc.is, tc.says)
			if got := w.left(); got != nil {
				t.Errorf("folders %q are left, want none", got)
			}
			if got := w.daemons(); len(got) != 0 {
				t.Errorf("daemons %+v, want none", got)
			}
		})
	}
}

func TestADaemonThatDoesNotComeUpHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.options.StartTimeout = time.Minute
	w.start()
	w.fault("deaf " + uuidA)
	waiting, end := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := w.client.EnsureMPS(waiting, shareOfA)
		first <- err
	}()
	w.until("it is being started", func() bool { return len(w.daemons()) == 1 })
	other := gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}}
	w.ensure(other)
	w.ensure(other)
	if err := w.client.StopMPS(t.Context(), other.Name); err != nil {
		t.Error(err)
	}
	select {
	case err := <-first:
		t.Errorf("the first one is no longer started (%v), so nothing was tried", err)
	default:
	}
	end()
	if err := <-first; err == nil {
		t.Error("the first one has started although it opens no socket")
	}
}

func TestAnAnswerWithoutALimitDoesNotContradict(t *testing.T) {
	w := newWorld(t)
	w.fault("vague")
	w.start()
	w.ensure(shareOfA)
	if s := w.daemon(); s.State != gpu.MPSReady {
		t.Errorf("daemon %+v, want it ready", s)
	}
}

func TestAStoppedDaemonLeavesItsLogsOnly(t *testing.T) {
	for name, fault := range map[string]string{"it quits": "", "it does not quit": "zombie", "it does not answer": "hung"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.options.StopGrace = time.Second
			w.start()
			w.ensure(shareOfA)
			pid := w.daemon().PID
			if fault != "" {
				w.fault(fault)
			}
			must(t, w.client.StopMPS(t.Context(), "gpu-1a-00"))
			if got := w.left(); got != nil {
				t.Errorf("folders %q are left, want none", got)
			}
			require.Error(t, fmt.Sprintf("process %d", pid), syscall.Kill(pid, 0), syscall.ESRCH)
			if _, err := os.Stat(filepath.Join(w.options.LogDir, "gpu-1a-00", "output.log")); err != nil {
				t.Error(err)
			}
			if err := w.client.StopMPS(t.Context(), "gpu-1a-00"); err != nil {
				t.Errorf("stop again: %v", err)
			}
		})
	}
}

func TestOneSupervisorHasARunDirectory(t *testing.T) {
	w := newWorld(t)
	w.start()
	require.Error(t, "second supervisor", errOf(supervisor.New(t.Context(), w.options)), gpu.ErrInUse)
}

func TestARunDirectoryThatIsTooLongForSocketsIsRefused(t *testing.T) {
	w := newWorld(t)
	w.start()
	options := w.options
	options.RunDir = filepath.Join(w.dir, strings.Repeat("long", 20))
	s, err := supervisor.New(t.Context(), options)
	must(t, err)
	defer func() { _ = s.Close() }()
	require.Error(t, "error", errOf(s.EnsureMPS(t.Context(), shareOfA)), gpu.ErrInvalid, "--run-dir")
}

func TestASupervisorThatIsAwayIsTransientAndFoundAgain(t *testing.T) {
	w := newWorld(t)
	client := client.New(filepath.Join(w.options.RunDir, "supervisor.sock"))
	away := func(when string) {
		t.Helper()
		if _, err := client.EnsureMPS(t.Context(), shareOfA); !errors.Is(err, gpu.ErrNotReady) || !gpu.Transient(err) || !strings.Contains(err.Error(), "gpu-mps-supervisor does not answer") {
			t.Errorf("%s: error %v, want one that is ErrNotReady and names the supervisor", when, err)
		}
	}
	away("before its first start")
	w.start()
	w.until("it is found", func() bool { _, err := client.EnsureMPS(t.Context(), shareOfA); return err == nil })
	w.stop()
	away("after its end")
	w.start()
	w.until("it is found again", func() bool { _, err := client.EnsureMPS(t.Context(), shareOfA); return err == nil })
}

func TestManyChangesAtOnceEndInOneDaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	done := make(chan error)
	for i := range 8 {
		go func() {
			if i%4 == 3 {
				done <- w.client.StopMPS(context.Background(), "gpu-1a-00")
				return
			}
			_, err := w.client.EnsureMPS(context.Background(), shareOfA)
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.ensure(shareOfA)
	if s := w.daemon(); s.State != gpu.MPSReady {
		t.Errorf("daemon %+v, want it ready", s)
	}
}

func TestFoldersGiveEachWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	w.start()
	w.ensure(shareOfA)
	for path, want := range map[string]fs.FileMode{
		"run":                               fs.ModeDir | 0o711,
		"run/supervisor.sock":               fs.ModeSocket | 0o600,
		"run/daemons":                       fs.ModeDir | 0o711,
		"run/daemons/gpu-1a-00":             fs.ModeDir | 0o711,
		"run/daemons/gpu-1a-00/daemon.json": 0o600,
		"run/daemons/gpu-1a-00/pipe":        fs.ModeDir | 0o755,
		"log":                               fs.ModeDir | 0o700,
		"log/gpu-1a-00":                     fs.ModeDir | 0o700,
	} {
		info, err := os.Stat(filepath.Join(w.dir, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

func TestACeilingThatCouldNotBeTakenAwayIsTakenAwayNextTime(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.fault("refuse")
	unlimited := gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{uuidA}}
	if _, err := w.client.EnsureMPS(t.Context(), unlimited); !errors.Is(err, gpu.ErrNotSupported) {
		t.Fatalf("error %v, want ErrNotSupported", err)
	}
	w.mend("refuse")
	w.ensure(unlimited)
	commands := w.commands("gpu-1a-00")
	if got, want := commands[len(commands)-2:], []string{"set_default_active_thread_percentage 100", "set_default_device_pinned_mem_limit 0 1048576M"}; len(commands) != 7 || !slices.Equal(got, want) {
		t.Errorf("commands %q, want them to end with the second %q", commands, want)
	}
}
