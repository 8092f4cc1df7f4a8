// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// wantAlive asks again if only the deadline of a check has passed: on an overloaded machine a
// socket of a healthy agent answers late.
func wantAlive(t *testing.T, a *running) {
	t.Helper()
	giveUp := time.Now().Add(time.Minute)
	for {
		code, body := get(t, a.agent, "/healthz")
		if code == http.StatusOK {
			return
		}
		onlyLate := strings.Count(body, "not ok") == strings.Count(body, "DeadlineExceeded")
		if !onlyLate || time.Now().After(giveUp) {
			t.Fatalf("/healthz = %d:\n%s", code, body)
		}
	}
}

func wantDead(t *testing.T, a *running, why string) {
	t.Helper()
	if code, body := get(t, a.agent, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, why) {
		t.Errorf("/healthz = %d:\n%swant 503 and %q", code, body, why)
	}
}

func TestCDISpecsThatAreGoneAreWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"with their folder": os.RemoveAll,
		"with the folder replaced by an empty one": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755))
		},
		"from their folder": func(dir string) error {
			return os.Remove(filepath.Join(dir, "gpu.nvidia.com-claim-uid-one.json"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claimFor("one", "gpu-1b-00")
			n := newNode(t, claim)
			a := n.start(t)
			if got := a.prepare(t, claim)["uid-one"]; got.Error != "" {
				t.Fatal(got.Error)
			}
			spec := filepath.Join(n.CDIDir, "gpu.nvidia.com-claim-uid-one.json")
			before, err := os.ReadFile(spec)
			if err != nil {
				t.Fatal(err)
			}
			wantAlive(t, a)
			if err := remove(n.CDIDir); err != nil {
				t.Fatal(err)
			}
			wantAlive(t, a)
			for after := []byte(nil); string(after) != string(before); after, _ = os.ReadFile(spec) {
				if t.Context().Err() != nil {
					t.Fatal("the spec is not written again")
				}
			}
			wantAlive(t, a)
			if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAnAgentWhoseRecordsAreGoneIsNotAlive(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"replaced": func(dir string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o750)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a := n.start(t)
			wantAlive(t, a)
			if err := remove(filepath.Join(n.driverDir(), "agent")); err != nil {
				t.Fatal(err)
			}
			wantDead(t, a, "not ok  folders: the agent's folder was replaced, restart the agent")
		})
	}
}

func TestAnAgentThatTheKubeletCannotReachIsNotAlive(t *testing.T) {
	t.Parallel()
	for name, socket := range map[string]func(n *node) string{
		"service":      func(n *node) string { return filepath.Join(n.driverDir(), "dra.sock") },
		"registration": func(n *node) string { return filepath.Join(n.KubeletRegistryDir, "gpu.nvidia.com-reg.sock") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a := n.start(t)
			wantAlive(t, a)
			if err := os.Remove(socket(n)); err != nil {
				t.Fatal(err)
			}
			wantDead(t, a, "not ok  sockets: socket "+socket(n)+" does not answer, restart the agent")
		})
	}
}

func TestTheEndOfTheAgentIsWatched(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ending := make(chan struct{}, 1)
	n.OnEnd = func() { ending <- struct{}{} }
	a := n.start(t)
	select {
	case <-ending:
		t.Error("the agent ends while it serves")
	default:
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	<-ending
}

// A GPU that hangs affects no other: the agent serves the others, stays alive and
// ends on request.
func TestAGPUThatHangsFromTheStartKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	hung, other := claimFor("hung", "gpu-1b-00"), claimFor("other", "gpu-43-00")
	n := newNode(t, hung, other)
	a := n.start(t)
	if got := a.prepare(t, hung)["uid-hung"]; got.Error != "" {
		t.Fatal(got.Error)
	}
	n.mustStop(t, a)
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.HangGPU(0); err != nil {
		t.Fatal(err)
	}

	b := n.start(t)
	if got := b.prepare(t, other)["uid-other"]; got.Error != "" {
		t.Errorf("a claim on another GPU: %s", got.Error)
	}
	wantAlive(t, b)
	if err := b.kubelet.Unprepare(t.Context(), other); err != nil {
		t.Errorf("a claim on another GPU is not unprepared: %v", err)
	}
	n.mustStop(t, b)
	if err := sim.ClearFaults(); err != nil {
		t.Fatal(err)
	}
}
