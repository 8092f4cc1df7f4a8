// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A container sees none of the host's processes, but a supervisor sees its.
func TestAContainerCannotPassAProcessOffAsADaemon(t *testing.T) {
	w := newWorld(t)
	impostor := w.impostor(&syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID})
	w.start()
	w.ensure(shareOfA)
	w.replaceDaemon()
	must(t, w.client.StopMPS(t.Context(), "gpu-1a-00"))
	if !running(impostor) {
		t.Error("a container's process was ended for its environment")
	}
}

// On a node with its own users, and for containers with hostPID.
func TestAnotherUserCannotPassAProcessOffAsADaemon(t *testing.T) {
	w := newWorld(t)
	w.impostor(&syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	w.start()
	w.ensure(shareOfA)
	w.replaceDaemon()
}

// impostor is a process with the name and the variables of a daemon that is for
// other devices.
func (w *world) impostor(as *syscall.SysProcAttr) (pid int) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("another user's process and a PID namespace take root")
	}
	impostor := exec.CommandContext(w.t.Context(), "/bin/sh", "-c", "read _", "nvidia-cuda-mps-control")
	impostor.Env = []string{"CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(w.options.LogDir, "gpu-1a-00"), "CUDA_VISIBLE_DEVICES=" + uuidB}
	impostor.SysProcAttr = as
	stdin, err := impostor.StdinPipe()
	must(w.t, err)
	must(w.t, impostor.Start())
	w.t.Cleanup(func() {
		_ = stdin.Close()
		_ = impostor.Wait() // the test may have killed it
	})
	return impostor.Process.Pid
}

// replaceDaemon kills the daemon and waits for the next one.
func (w *world) replaceDaemon() {
	w.t.Helper()
	first := w.daemon().PID
	must(w.t, syscall.Kill(first, syscall.SIGKILL))
	w.until("another daemon is ready", func() bool {
		s := w.daemon()
		if s.State == gpu.MPSFailed && s.Problem != "it has ended" {
			w.t.Fatal(s.Problem)
		}
		return s.State == gpu.MPSReady && s.PID != first
	})
}
