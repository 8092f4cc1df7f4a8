// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestASupervisorThatEndsWhileItAdoptsEndsNoDaemon(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	before := w.daemon().PID
	w.stop()
	w.fault("hung")
	w.start()
	w.until("the supervisor queries it", func() bool { return w.daemon().State == gpu.MPSStarting })
	w.stop()
	w.mend("hung")
	if !running(before) {
		t.Fatalf("daemon %d was killed when the supervisor ended", before)
	}
	w.start()
	w.until("ready", func() bool { return w.daemon().State == gpu.MPSReady })
	if got := w.daemon().PID; got != before {
		t.Errorf("PID %d, want %d", got, before)
	}
}

func TestADaemonIsLeftAloneWhileTheDriversProgramIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		instead string // of the program
		says    string
	}{
		"it is not there": {says: "install the NVIDIA driver"},
		"it fails":        {instead: "#!/bin/sh\nexit 127\n", says: "exit status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			w := newWorld(t)
			w.options.Clock = clock
			w.start()
			w.ensure(shareOfA)
			before := w.daemon().PID
			program := w.options.Driver.Binaries("nvidia-cuda-mps-control")[0]
			must(t, os.Rename(program, program+".away"))
			if tc.instead != "" {
				must(t, os.WriteFile(program, []byte(tc.instead), 0o755))
			}
			clock.Step(time.Hour) // the daemon is probed
			w.restart()
			w.until("the next supervisor has tried to adopt it", func() bool { return w.daemon().State == gpu.MPSFailed })
			if got := w.daemon().Problem; !strings.Contains(got, tc.says) {
				t.Errorf("problem %q, want one that says %q", got, tc.says)
			}
			must(t, os.Rename(program+".away", program))
			w.until("it is ready", func() bool {
				clock.Step(time.Second)
				return w.daemon().State == gpu.MPSReady
			})
			if s := w.daemon(); s.PID != before || s.Restarts != 0 {
				t.Errorf("daemon %+v, want process %d without a restart", s, before)
			}
		})
	}
}

// Its clients would go on without limits if it were ended.
func TestADaemonThatRefusesItsSettingsGoesOn(t *testing.T) {
	for name, unknown := range map[string]bool{"one that is known": false, "one whose record cannot be read": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			w.ensure(shareOfA)
			before := w.daemon().PID
			w.stop()
			w.fault("refuse")
			if unknown {
				w.record("{", "")
			}
			w.start()
			if !unknown {
				w.until("the next supervisor has asked it", func() bool { return w.daemon().State != gpu.MPSStarting })
			}
			require.Error(t, "a share", errOf(w.client.EnsureMPS(t.Context(), shareOfA)), gpu.ErrNotSupported)
			if s := w.daemon(); s.State != gpu.MPSReady || s.PID != before || s.Restarts != 0 || !strings.Contains(s.Problem, "refuses its settings") {
				t.Errorf("daemon %+v, want process %d with a problem", s, before)
			}
			w.mend("refuse")
			w.ensure(shareOfA)
			if s := w.daemon(); s.State != gpu.MPSReady || s.PID != before || s.Problem != "" {
				t.Errorf("daemon %+v, want process %d without a problem", s, before)
			}
		})
	}
}

// A supervisor may end between recording ceilings and telling the daemon of them.
func TestADaemonThatIsAdoptedHasTheSettingsThatAreRecorded(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.stop()
	w.record(`"ThreadPercentage":25`, `"ThreadPercentage":50`)
	w.start()
	w.until("ready", func() bool { return w.daemon().State == gpu.MPSReady })
	if said := w.commands("gpu-1a-00"); !slices.Contains(said, "set_default_active_thread_percentage 50") {
		t.Errorf("the daemon received %q, want the percentage of the record", said)
	}
}

func TestADaemonOfOtherDevicesIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	before := w.daemon().PID
	w.stop()
	w.record("{", "") // so that its devices are not known
	w.start()
	ofB := shareOfA
	ofB.Devices = []string{uuidB}
	if _, err := w.client.EnsureMPS(t.Context(), ofB); !errors.Is(err, gpu.ErrInUse) || !running(before) {
		t.Errorf("error %v, want %v, and the daemon of the other device to run on", err, gpu.ErrInUse)
	}
}
