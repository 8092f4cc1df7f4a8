// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// refusing is pidfd_open but for other processes than this one, whose numbers it
// keeps.
func refusing(err error, refused *[]int) func(pid, flags int) (int, error) {
	return func(pid, flags int) (int, error) {
		if pid == os.Getpid() {
			return unix.PidfdOpen(pid, flags)
		}
		*refused = append(*refused, pid)
		return -1, err
	}
}

func TestADaemonThatCannotBeFollowedIsEnded(t *testing.T) {
	var started []int
	o := Double(t)
	o.openProcess = refusing(unix.EMFILE, &started)
	s, err := New(t.Context(), o)
	must(t, err)
	defer func() { _ = s.Close() }()
	_, err = s.EnsureMPS(t.Context(), shareOfOne)
	require.Error(t, "EnsureMPS", err, unix.EMFILE)
	if len(started) == 0 {
		t.Fatal("nothing was started, so nothing was tried")
	}
	if err := unix.Kill(started[0], 0); !errors.Is(err, unix.ESRCH) {
		_ = unix.Kill(started[0], unix.SIGKILL)
		t.Errorf("process %d: %v, want it to be gone", started[0], err)
	}
}

func TestAProcessThatCannotBeFollowedIsNotPassedOver(t *testing.T) {
	server := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read _", serverProgram)
	server.Env = []string{logVariable + "/of/mine"}
	stdin, err := server.StdinPipe()
	must(t, err)
	must(t, server.Start())
	defer func() { _ = stdin.Close(); _ = server.Wait() }()
	for _, tc := range []struct{ refused, want error }{
		{unix.EMFILE, unix.EMFILE},
		{unix.ESRCH, nil}, // it has ended
	} {
		var refused []int
		o := Options{openProcess: refusing(tc.refused, &refused)}.withDefaults()
		require.Error(t, fmt.Sprintf("pidfd_open says %v", tc.refused), o.killProcesses(t.Context(), "/of/mine"), tc.want)
		if len(refused) != 1 || refused[0] != server.Process.Pid {
			t.Errorf("tried to follow %v, want %d", refused, server.Process.Pid)
		}
	}
}

func TestASupervisorThatCannotFollowProcessesDoesNotStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	_, err := New(t.Context(), Options{RunDir: dir, LogDir: dir, openProcess: func(int, int) (int, error) { return -1, unix.ENOSYS }})
	require.Error(t, "New", err, gpu.ErrNotSupported, "Linux 5.3")
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("it has made %s", dir)
	}
}

// A process can end between two checks, and another one get its PID.
func TestAProcessThatTookTheNumberOfADaemonIsNotADaemon(t *testing.T) {
	const logDir = "/of/mine"
	taker := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read _", program)
	taker.Env = []string{logVariable + logDir}
	taker.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := taker.StdinPipe()
	must(t, err)
	must(t, taker.Start())
	defer func() { _ = stdin.Close(); _ = taker.Wait() }()
	ended := exec.CommandContext(t.Context(), "true")
	must(t, ended.Start())
	fd, err := unix.PidfdOpen(ended.Process.Pid, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	must(t, ended.Wait())
	o := Double(t)
	// The pidfd is of the process that has ended.
	o.openProcess = func(pid, flags int) (int, error) {
		if pid == taker.Process.Pid {
			return unix.Dup(fd)
		}
		return unix.PidfdOpen(pid, flags)
	}
	found, err := o.findDaemon(logDir)
	if found != nil || err != nil {
		t.Errorf("found %+v (%v), want none", found, err)
		found.stopFollowing()
	}
	if err := o.killProcesses(t.Context(), logDir); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(taker.Process.Pid, 0); err != nil {
		t.Errorf("the process that took the number: %v, want it to run on", err)
	}
}
