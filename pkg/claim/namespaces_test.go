// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// setNamespaces sets whether the driver lets MPS daemons have namespaces.
func (w *world) setNamespaces(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a, g := range w.gpus {
		g.MPSNamespaces = on
		w.gpus[a] = g
	}
}

// newNamespaceWorld is newShareWorld with a driver that has namespaces.
func newNamespaceWorld(t fataler, dir string, n int) *world {
	w := newShareWorld(t, dir, n)
	w.setNamespaces(true)
	return w
}

func TestWhatContainersGetOfANamespace(t *testing.T) {
	client := func(id, device, namespace, limits string) string {
		pipe := "/run/sup/" + device + "/pipe/s/" + namespace
		return "uid-c-" + id + "\n  CUDA_MPS_PIPE_DIRECTORY=" + pipe + "\n" + limits + "  " + pipe + " at " + pipe + "\n  /run/sup/" + device + "/shm at /dev/shm\n"
	}
	// No memory limit in the environment: with one for a GPU that a process does not see,
	// it would have none at all.
	const first = "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30\n"
	for name, c := range map[string]struct {
		pieces  []piece
		edits   string
		daemons string
	}{
		"a share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}},
			client("gpu-00-00_share-c-0", "gpu-00-00", "sharec0", first),
			"gpu-00-00 of GPU-0; sharec0 30% 19968M\n",
		},
		"two shares of one GPU": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", compute: "30"}, {device: "gpu-00-00", memory: "40Gi", config: config("ShareConfig", `"processes":2,"compute":"Burst"`)}},
			client("gpu-00-00_share-c-0", "gpu-00-00", "sharec0", first) +
				client("gpu-00-00_share-c-1", "gpu-00-00", "sharec1", ""),
			"gpu-00-00 of GPU-0; sharec0 30% 19968M; sharec1 100% 19968M\n",
		},
		"a share of everything": {
			[]piece{{device: "gpu-00-00", memory: "80Gi", config: config("ShareConfig", "")}},
			client("gpu-00-00", "gpu-00-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n"),
			"gpu-00-00 of GPU-0; uidc 100% 81408M\n",
		},
		"a plain share": {
			[]piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}},
			"uid-c-gpu-00-00_share-c-0\n", "",
		},
		"two whole GPUs that processes of several users share": {
			[]piece{
				{device: "gpu-01-00", request: "both", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"threadPercentage":50,"memoryLimit":"10Gi","multiUser":true}}`)},
				{device: "gpu-00-00", request: "both"},
			},
			client("gpu-01-00", "gpu-01-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n") +
				client("gpu-00-00", "gpu-01-00", "uidc", "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n"),
			"gpu-01-00 of GPU-1,GPU-0; uidc 50% 10240M\n",
		},
		"GPUs with a limit for each": {
			[]piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":0,"memoryLimit":"5Gi"}]}}`)}},
			"uid-c-gpu-00-00\n  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe\n  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=5120M\n  /run/sup/gpu-00-00/pipe at /run/sup/gpu-00-00/pipe\n  /run/sup/gpu-00-00/shm at /dev/shm\n",
			"gpu-00-00 of GPU-0=5120M\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNamespaceWorld(t, t.TempDir(), 2)
			m, all := w.start(), pieces("c", c.pieces...)
			if _, err := m.Prepare(once(), all); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.edits, w.edits(all)); diff != "" {
				t.Errorf("CDI (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.daemons, w.supervisor.String()); diff != "" {
				t.Errorf("daemons (-want +got):\n%s", diff)
			}
			// A driver that has lost the feature does not change a running claim.
			before := w.left(m)
			w.setNamespaces(false)
			m, _ = w.restart(t.Context())
			if _, err := m.Prepare(once(), all); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before+c.edits, w.left(m)+w.edits(all)); diff != "" {
				t.Errorf("prepared again (-first +again):\n%s", diff)
			}
			must(t, m.Unprepare(once(), all.UID))
			if got := w.left(m); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}

func TestANamespaceEndsWithItsShare(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	for _, step := range []struct{ c, size, want string }{
		{"ten", "10Gi", "gpu-00-00 of GPU-0; shareten0 12% 9728M\n"},
		{"thirty", "30Gi", "gpu-00-00 of GPU-0; shareten0 12% 9728M; sharethirty0 37% 30208M\n"},
		{"ten", "", "gpu-00-00 of GPU-0; sharethirty0 37% 30208M\n"},
		{"thirty", "", ""},
	} {
		c := pieces(step.c, piece{device: "gpu-00-00", memory: step.size})
		if step.size == "" {
			must(t, m.Unprepare(once(), c.UID))
		} else if _, err := m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, w.supervisor.String()); diff != "" {
			t.Errorf("%s %s: daemons (-want +got):\n%s", step.c, step.size, diff)
		}
	}
}

// A GPU keeps the protocol of its shares until the last of them has ended, whatever the
// driver supports meanwhile.
func TestAShareJoinsTheProtocolOfTheOthers(t *testing.T) {
	const named, legacy = "gpu-00-00 of GPU-0; sharesecond0 25% 19968M", "gpu-00-00 of GPU-0=19968M, 25%"
	for name, tc := range map[string]struct {
		before         bool
		first, joined  string
		second, closer string
	}{
		"an updated driver": {false, legacy, legacy, legacy, "gpu-00-00 of GPU-0; sharethird0 25% 19968M"},
		"an older driver":   {true, "gpu-00-00 of GPU-0; sharefirst0 25% 19968M", "gpu-00-00 of GPU-0; sharefirst0 25% 19968M; sharesecond0 25% 19968M", named, legacy},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			w.setNamespaces(tc.before)
			m := w.start()
			share := func(name string) *resourceapi.ResourceClaim {
				return pieces(name, piece{device: "gpu-00-00", memory: "20Gi"})
			}
			want := func(daemons string) {
				t.Helper()
				if diff := cmp.Diff(daemons+"\n", w.supervisor.String()); diff != "" {
					t.Errorf("daemons (-want +got):\n%s", diff)
				}
			}
			prepare := func(name string) {
				t.Helper()
				if _, err := m.Prepare(once(), share(name)); err != nil {
					t.Fatal(err)
				}
			}
			prepare("first")
			want(tc.first)
			w.setNamespaces(!tc.before)
			m, _ = w.restart(t.Context())
			prepare("second")
			want(tc.joined)
			must(t, m.Unprepare(once(), share("first").UID))
			want(tc.second)
			must(t, m.Unprepare(once(), share("second").UID))
			prepare("third")
			want(tc.closer)
		})
	}
}

// A share that requires a namespace does not join shares without one, which stay as they
// are.
func TestAShareThatRequiresANamespaceWaitsForSharesWithout(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	w.limits = true
	m := w.start()
	old := pieces("old", piece{device: "gpu-00-00", memory: "20Gi"})
	strict := pieces("strict", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", `"require":"daemon"`)})
	if _, err := m.Prepare(once(), strict); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("without namespaces: %v, want %v", err, gpu.ErrNotSupported)
	}
	if _, err := m.Prepare(once(), old); err != nil {
		t.Fatal(err)
	}
	w.setNamespaces(true)
	before := w.left(m)
	if _, err := m.Prepare(once(), strict); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "without namespaces") {
		t.Errorf("with a share without: %v, want one that is ErrInUse and names namespaces", err)
	}
	if diff := cmp.Diff(before, w.left(m)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	must(t, m.Unprepare(once(), old.UID))
	devices, err := m.Prepare(once(), strict)
	if _, compute := devices[0].Terms.Enforcement(); err != nil || compute != v1alpha1.EnforcementDaemon {
		t.Errorf("afterwards: %+v, %v, want compute at the level of the daemon", devices, err)
	}
}

// The CDI spec of a claim with a lost record names its namespace, so that another share
// neither ends it nor gets another protocol.
func TestANamespaceOfALostRecordStays(t *testing.T) {
	for _, namespaces := range []bool{true, false} {
		t.Run(fmt.Sprint(namespaces), func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			w.setNamespaces(namespaces)
			m := w.start()
			lost, other := pieces("lost", piece{device: "gpu-00-00", memory: "20Gi"}), pieces("other", piece{device: "gpu-00-00", memory: "10Gi"})
			if _, err := m.Prepare(once(), lost); err != nil {
				t.Fatal(err)
			}
			edits, daemons := w.edits(lost), w.supervisor.String()
			must(t, os.WriteFile(w.recordPath(lost), []byte("x"), 0o600))
			w.setNamespaces(!namespaces)
			m, _ = w.restart(t.Context())
			if _, err := m.Prepare(once(), other); err != nil {
				t.Fatal(err)
			}
			if pipe := "CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-00-00/pipe"; strings.Contains(w.edits(other), pipe+"/s/shareother0\n") != namespaces {
				t.Errorf("another share has the other protocol:\n%s", w.edits(other))
			}
			if got := w.supervisor.String(); namespaces && !strings.Contains(got, "; sharelost0 25% 19968M") {
				t.Errorf("the namespace of the lost claim has ended: %s", got)
			}
			must(t, m.Unprepare(once(), other.UID))
			if _, err := m.Prepare(once(), lost); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(edits+daemons, w.edits(lost)+w.supervisor.String()); diff != "" {
				t.Errorf("prepared again (-before +after):\n%s", diff)
			}
		})
	}
}

// A daemon that no claim uses does not keep a share from its protocol.
func TestAStrayDaemonOfTheOtherProtocolIsReplaced(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	if _, err := w.supervisor.EnsureMPS(once(), gpu.MPSDaemon{Name: "gpu-00-00", Devices: []string{"GPU-0"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Prepare(once(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"start", "stop", "start"}, verbs(w.supervisor.log)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A daemon with shares is not stopped for its protocol, whatever has started it.
func TestADaemonOfTheOtherProtocolWithSharesIsLeftAlone(t *testing.T) {
	w := newNamespaceWorld(t, t.TempDir(), 1)
	m := w.start()
	if _, err := m.Prepare(once(), pieces("first", piece{device: "gpu-00-00", memory: "20Gi"})); err != nil {
		t.Fatal(err)
	}
	legacy := gpu.MPSDaemon{Name: "gpu-00-00", Devices: []string{"GPU-0"}}
	w.supervisor.daemons["gpu-00-00"] = legacy
	second := pieces("second", piece{device: "gpu-00-00", memory: "20Gi"})
	if _, err := m.Prepare(once(), second); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "protocol") {
		t.Errorf("got %v, want one that is ErrInUse and names the protocol", err)
	}
	if diff := cmp.Diff("gpu-00-00 of GPU-0\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
	if held := w.held(m); strings.Contains(held, "second") {
		t.Errorf("the refused claim holds something: %s", held)
	}
}

func TestAShareOfAMIGDeviceHasNoNamespace(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	w.setNamespaces(true)
	m, c := w.start(), pieces("c", piece{device: part, memory: "5Gi"})
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	if got := w.edits(c); !strings.Contains(got, "CUDA_MPS_PIPE_DIRECTORY=/run/sup/"+part+"/pipe\n") {
		t.Errorf("CDI:\n%s", got)
	}
}
