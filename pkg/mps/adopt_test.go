package mps_test

import (
	"os"
	"strings"
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
