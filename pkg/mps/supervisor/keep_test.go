// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestADaemonThatDiesIsBackWithItsSettings(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.replaceDaemon()
	s := w.daemon()
	if s.Restarts != 1 {
		t.Errorf("%d restarts, want 1", s.Restarts)
	}
	require.Same(t, "daemon", shareOfA, s.Daemon)
	want := []string{"start -f on " + uuidA, "set_default_active_thread_percentage 25", "set_default_device_pinned_mem_limit 0 20480M"}
	require.Same(t, "commands", want, w.commands("gpu-1a-00"))
}

func TestServersOfADaemonThatDiedLiveOnUntilItIsStopped(t *testing.T) {
	w := newWorld(t)
	w.fault("parent")
	w.start()
	w.ensure(shareOfA)
	server, err := strconv.Atoi(strings.TrimPrefix(w.commands("gpu-1a-00")[1], "server "))
	must(t, err)
	w.mend("parent")
	w.replaceDaemon()
	if err := syscall.Kill(server, 0); err != nil {
		t.Errorf("server %d has clients and is gone: %v", server, err)
	}
	must(t, w.client.StopMPS(t.Context(), "gpu-1a-00"))
	if running(server) {
		t.Errorf("server %d runs on after the stop", server)
	}
}

// running reports whether a process does more than wait for its parent to
// notice its end.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestADaemonThatKeepsDyingIsStartedLessAndLessOften(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock = clock
	w.start()
	w.ensure(shareOfA)
	pid := w.daemon().PID
	w.fault("dead")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	for restarts, wait := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		if wait > 0 {
			// One waiter is the interval of the probes.
			w.until("it waits", func() bool { return clock.Waiters() == 2 })
			clock.Step(wait - time.Millisecond)
			if clock.Waiters() != 2 {
				t.Fatalf("the daemon is started before %s have passed", wait)
			}
			if got := w.daemon().Restarts; got != restarts {
				t.Fatalf("%d restarts before %s have passed, want %d", got, wait, restarts)
			}
			clock.Step(time.Millisecond)
		}
		w.until("it is started", func() bool { return w.daemon().Restarts == restarts+1 })
	}
	w.until("it is failed", func() bool { return w.daemon().State == gpu.MPSFailed })
	if s := w.daemon(); !strings.Contains(s.Problem, "no CUDA-capable device") {
		t.Errorf("problem %q, want the daemon's own words", s.Problem)
	}
	w.mend("dead")
	w.ensure(shareOfA) // does not wait for the back-off
	if s := w.daemon(); s.State != gpu.MPSReady || s.Problem != "" {
		t.Errorf("daemon %+v, want it ready", s)
	}
}

func TestADaemonThatHangsIsKilledAndStartedAnew(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock, w.options.CommandTimeout = clock, time.Second
	w.start()
	w.ensure(shareOfA)
	first := w.daemon().PID
	w.fault("hung")
	clock.Step(time.Hour)
	w.until("it is ended", func() bool { return syscall.Kill(first, 0) != nil })
	w.mend("hung")
	w.until("another daemon is ready", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != first })
}

// A container that runs as root can remove it.
func TestADaemonWithoutItsSocketIsStartedAnew(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock = clock
	w.start()
	dirs := w.ensure(shareOfA)
	first := w.daemon().PID
	must(t, os.Remove(filepath.Join(dirs.Pipe, "control")))
	clock.Step(time.Hour)
	w.until("another daemon is ready", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != first })
}

func TestAHangIsFoundByAShareThatChangesNothing(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock, w.options.CommandTimeout = clock, time.Second
	w.start()
	w.ensure(shareOfA)
	first := w.daemon().PID
	clock.Step(6 * time.Second)
	w.daemon() // which answers
	clock.Step(6 * time.Second)
	must(t, syscall.Kill(first, syscall.SIGSTOP))
	w.ensure(shareOfA) // asks nothing: it has answered a moment ago
	clock.Step(4 * time.Second)
	if _, err := w.client.EnsureMPS(t.Context(), shareOfA); !errors.Is(err, gpu.ErrTimeout) {
		t.Fatalf("error %v, want one that is ErrTimeout", err)
	}
	w.until("another daemon is ready", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != first })
	w.ensure(shareOfA)
}

func TestAHangIsFoundWhenCeilingsAreToChange(t *testing.T) {
	w := newWorld(t)
	w.options.CommandTimeout = time.Second
	w.start()
	w.ensure(shareOfA)
	first := w.daemon().PID
	w.fault("hung")
	larger := shareOfA
	larger.ThreadPercentage = 50
	if _, err := w.client.EnsureMPS(t.Context(), larger); !errors.Is(err, gpu.ErrTimeout) {
		t.Fatalf("error %v, want one that is ErrTimeout", err)
	}
	w.until("it is ended", func() bool { return syscall.Kill(first, 0) != nil })
	w.mend("hung")
	w.ensure(larger)
	if got := w.daemon().Daemon.ThreadPercentage; got != 50 {
		t.Errorf("thread percentage %d, want 50", got)
	}
}

func TestDaemonsOutliveTheSupervisor(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}})
	before := w.daemons()
	w.restart()
	w.until("both are adopted", func() bool {
		got := w.daemons()
		return len(got) == 2 && got[0].State == gpu.MPSReady && got[1].State == gpu.MPSReady
	})
	require.Same(t, "daemons", before, w.daemons())
	// One that is not a child of the supervisor is watched all the same.
	must(t, syscall.Kill(before[0].PID, syscall.SIGKILL))
	w.until("it is started anew", func() bool { s := w.daemons()[0]; return s.State == gpu.MPSReady && s.Restarts == 1 })
}

func TestADaemonThatDiedWithoutASupervisorIsBackWithTheNext(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	pid := w.daemon().PID
	w.stop()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	w.start()
	w.until("it is ready", func() bool { return w.daemon().State == gpu.MPSReady })
	if s := w.daemon(); s.PID == pid || s.Restarts != 1 {
		t.Errorf("daemon %+v, want another process and one restart", s)
	}
}

func TestADaemonWithoutAReadableRecordIsLeftAloneUntilACall(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	before := w.daemon().PID
	w.stop()
	w.record("{", "")
	w.start()
	if s := w.daemon(); s.State != gpu.MPSFailed || !strings.Contains(s.Problem, "daemon.json") {
		t.Errorf("daemon %+v, want it failed for its record", s)
	}
	w.ensure(shareOfA)
	if got := w.daemon().PID; got != before {
		t.Errorf("PID %d, want that of the daemon that ran, %d", got, before)
	}
}
