package mps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestASupervisorThatEndsWhileItAdoptsEndsNoDaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	before := w.daemon().PID
	w.stop()
	w.fault("hung")
	w.start()
	w.until("it is asked", func() bool { return w.daemon().State == gpu.MPSStarting })
	w.stop()
	w.mend("hung")
	if !running(before) {
		t.Fatalf("daemon %d was ended by a supervisor that was told to end", before)
	}
	w.start()
	w.until("ready", func() bool { return w.daemon().State == gpu.MPSReady })
	if got := w.daemon().PID; got != before {
		t.Errorf("PID %d, want %d", got, before)
	}
}

func TestADaemonIsLeftAloneWhileTheDriversProgramIsAway(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t)
	w.options.Clock = clock
	w.start()
	w.ensure(shareOfA)
	before := w.daemon().PID
	program := w.options.Driver.Binary("nvidia-cuda-mps-control")
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour) // it is asked whether it is well
	w.restart()
	w.until("the next supervisor has tried to adopt it", func() bool { return w.daemon().State == gpu.MPSFailed })
	if got := w.daemon().Problem; !strings.Contains(got, "is the NVIDIA driver installed under") {
		t.Errorf("problem %q, want one that names the driver", got)
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	w.until("it is ready", func() bool {
		clock.Step(time.Second)
		return w.daemon().State == gpu.MPSReady
	})
	if s := w.daemon(); s.PID != before || s.Restarts != 0 {
		t.Errorf("daemon %+v, want process %d without a restart", s, before)
	}
}

// A container sees none of the host's processes, but a supervisor sees its.
func TestAContainerCannotPassAProcessOffAsADaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	impostor := exec.CommandContext(t.Context(), "sleep", "1000")
	impostor.Env = []string{"CUDA_MPS_LOG_DIRECTORY=" + filepath.Join(w.options.LogDir, "gpu-1a-00"), "CUDA_VISIBLE_DEVICES=" + uuidB}
	impostor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID}
	if err := impostor.Start(); err != nil {
		t.Skipf("a PID namespace takes privileges: %v", err)
	}
	first := w.daemon().PID
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until("another daemon is ready", func() bool { s := w.daemon(); return s.State == gpu.MPSReady && s.PID != first })
	if err := w.client.StopMPS(t.Context(), "gpu-1a-00"); err != nil {
		t.Fatal(err)
	}
	if !running(impostor.Process.Pid) {
		t.Error("a container's process was ended for its environment")
	}
}
