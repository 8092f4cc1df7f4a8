// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// playServer starts a process with the name of an MPS server, and returns it and its end.
func playServer(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.Args[0] = serverProgram
	must(t, cmd.Start())
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	}
}

// The lines are as release 595 writes them: kubernetes-sigs/dra-driver-nvidia-gpu, pull request 1153.
func TestTheLogOfADaemonListsWhoWaitsAndWhichServerIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.log")
	var l controlLog
	check := func(when string, lost bool, want ...gpu.MPSWaiting) {
		t.Helper()
		must(t, l.read(path))
		waiting := l.waits()
		require.Same(t, when+": waiting", want, waiting)
		if got := l.hasLostServer(waiting); got != lost {
			t.Errorf("%s: lost %t, want %t", when, got, lost)
		}
	}
	add := func(format string, args ...any) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(t, err)
		defer func() { _ = file.Close() }()
		_, err = fmt.Fprintf(file, "[2026-05-31 23:48:21.671 Control 11107] "+format+"\n", args...)
		must(t, err)
	}
	const waits = "NEW CLIENT %d from user %d: Server is not ready, push client to pending list"
	const starts = "Starting new server %d for user %d"
	me := os.Getpid()
	first, endFirst := playServer(t)
	second, endSecond := playServer(t)
	third, endThird := playServer(t)
	gone, endGone := playServer(t)
	endGone()

	check("without a log", false)
	add(waits, me, 1000)
	check("before the first server", false)
	add(starts, first, 1000)
	add("NEW SERVER %d: Ready", first)
	check("with a server", false)
	add(waits, me, 0)
	add(waits, gone, 0)
	add(waits, 0, 0)
	check("another user's client comes", false, gpu.MPSWaiting{PID: me, UID: 0})
	endFirst()
	check("its turn comes", false, gpu.MPSWaiting{PID: me, UID: 0})
	add(starts, second, 0)
	check("its turn is there", false)
	endSecond()
	check("the server was killed", true)
	check("later", false)
	must(t, os.WriteFile(path, nil, 0o600))
	check("the log was emptied", false)
	add(starts, third, 0)
	check("the next server", false)
	endThird()
	add("half a line")
	must(t, os.Truncate(path, l.offset+3))
	check("that was killed too", true)
}
