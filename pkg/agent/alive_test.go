// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	const metadata, spec = "dra-device-metadata/team_one/gpu/metadata.json", "gpu.nvidia.com_metadata_uid-one_gpu.json"
	for name, remove := range map[string]func(dir, data string) error{
		"with their folder": func(dir, _ string) error { return os.RemoveAll(dir) },
		"with the folder replaced by an empty one": func(dir, _ string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755))
		},
		"from their folder": func(dir, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "gpu.nvidia.com-claim-uid-one.json")), os.Remove(filepath.Join(dir, spec)))
		},
		"with the metadata that they mount": func(dir, data string) error {
			return errors.Join(os.Rename(filepath.Join(data, "dra-device-metadata"), filepath.Join(data, "moved")), os.Remove(filepath.Join(dir, spec)))
		},
		"but for the metadata, which is of an earlier claim": func(_, data string) error {
			return os.WriteFile(filepath.Join(data, metadata), []byte(`{"metadata":{"name":"one","namespace":"team","uid":"uid-earlier"}}`), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The claim is from a template, whose metadata has another path in containers.
			claim := claimFor("one", "gpu-1b-00")
			claim.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: "gpu-of-pod"}
			n := newNode(t, claim)
			n.ReconcileInterval = 20 * time.Millisecond
			a := n.start(t)
			a.mustPrepare(t, claim)
			specs := func() string {
				var all []byte
				for _, name := range []string{"gpu.nvidia.com-claim-uid-one.json", spec} {
					text, err := os.ReadFile(filepath.Join(n.CDIDir, name))
					if err != nil {
						return ""
					}
					all = append(all, text...)
				}
				return string(all)
			}
			before := specs()
			if before == "" {
				t.Fatal("a spec is missing")
			}
			wantAlive(t, a)
			if err := remove(n.CDIDir, n.driverDir()); err != nil {
				t.Fatal(err)
			}
			wantAlive(t, a)
			// The attributes in the metadata change with what the node offers.
			whole := func() bool {
				text, err := os.ReadFile(filepath.Join(n.driverDir(), metadata))
				return err == nil && strings.Contains(string(text), `"uid": "uid-one"`)
			}
			for specs() != before || !whole() {
				<-time.After(time.Millisecond)
			}
			wantAlive(t, a)
			a.unprepare(t, claim)
		})
	}
}

// No container of the claim starts, and the kubelet does not prepare it again.
func TestASpecThatCannotBeWrittenAgainIsReportedOnTheClaim(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	n.ReconcileInterval = 20 * time.Millisecond
	a := n.start(t)
	a.mustPrepare(t, claim)
	ready := func(want metav1.ConditionStatus, words string) {
		t.Helper()
		for {
			object, err := n.client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("the claim is not reported as %s %q: %v", want, words, err)
			}
			if d := object.Status.Devices; len(d) == 1 && d[0].Conditions[0].Status == want && strings.Contains(d[0].Conditions[0].Message, words) {
				return
			}
			<-time.After(time.Millisecond)
		}
	}
	ready(metav1.ConditionTrue, "the device is prepared")
	spec := filepath.Join(n.CDIDir, "gpu.nvidia.com-claim-uid-one.json")
	for os.Mkdir(spec, 0o700) != nil {
		if err := os.Remove(spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(n.CDIDir, "gpu.nvidia.com_metadata_uid-one_gpu.json")); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionFalse, "write CDI spec: rename "+spec)
	if err := os.Remove(spec); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionTrue, "the device is prepared")
}

func TestAnAgentWhoseRecordsAreGoneIsNotAlive(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"removed":  removeAll,
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

// removeAll removes a folder in which an agent may write meanwhile.
func removeAll(dir string) error {
	for {
		if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
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
	a.mustPrepare(t, hung)
	n.mustStop(t, a)
	sim := n.sim(t)
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
