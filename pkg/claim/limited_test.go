// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// newLimitWorld returns a world whose driver limits the memory of containers.
func newLimitWorld(t *testing.T, n int) *world {
	w := newShareWorld(t, t.TempDir(), n)
	w.limits = true
	return w
}

func TestTheDriverLimitsTheContainersOfShares(t *testing.T) {
	for name, c := range map[string]struct {
		piece piece
		// hook is the arguments of the hook after the device; empty for none.
		hook string
		// environment must and must not be in the spec.
		environment []string
		without     []string
	}{
		"an MPS share": {
			piece:       piece{device: "gpu-00-00", memory: "20Gi"},
			hook:        `"0000:00:00.0", "21474836480", "1"`,
			environment: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20480M"},
		},
		"a share of two containers": {
			piece: piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", `"containers":2`)},
			hook:  `"0000:00:00.0", "10737418240", "2"`,
		},
		"a plain share": {
			without: []string{"CUDA_MPS"},
			piece:   piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)},
			hook:    `"0000:00:00.0", "21474836480", "1"`,
		},
		"a time slice with memory": {
			piece: piece{device: "gpu-00-00-ts", memory: "20Gi"},
			hook:  `"0000:00:00.0", "21474836480", "1"`,
		},
		"a time slice without memory": {piece: piece{device: "gpu-00-00-ts"}},
		"a whole GPU":                 {piece: piece{device: "gpu-00-00"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLimitWorld(t, 1)
			m := w.start()
			c1 := pieces("c", c.piece)
			must(t, errOf(m.Prepare(once(), c1)))
			spec := w.specText(c1)
			hooks := strings.Count(spec, `"createRuntime"`)
			if want := c.hook != ""; hooks != 1 && want || hooks != 0 && !want {
				t.Errorf("%d hooks in %s", hooks, spec)
			}
			if !strings.Contains(spec, strings.ReplaceAll(c.hook, " ", "")) {
				t.Errorf("no hook with %s in %s", c.hook, spec)
			}
			for _, text := range c.environment {
				if !strings.Contains(spec, text) {
					t.Errorf("%s is missing in %s", text, spec)
				}
			}
			for _, text := range c.without {
				if strings.Contains(spec, text) {
					t.Errorf("%s is in %s", text, spec)
				}
			}
			limited, err := m.LimitedDevices(once())
			must(t, err)
			if len(limited) != hooks || hooks > 0 && (limited[0].Claim.Name != "c" || limited[0].Device.String() != c.piece.device || !strings.Contains(spec, limited[0].ID)) {
				t.Errorf("%d hooks, and the devices %v are limited", hooks, limited)
			}
			must(t, m.Unprepare(once(), c1.UID))
			if open, err := w.limitFolder().Devices(); err != nil || len(open) > 0 {
				t.Errorf("devices %v still admit containers, %v", open, err)
			}
		})
	}
}

func TestLimitsThatCannotBeHeld(t *testing.T) {
	require := func(level string) string { return config("ShareConfig", fmt.Sprintf(`"require":%q`, level)) }
	for name, c := range map[string]struct {
		world func(*world)
		piece piece
		is    error
		says  string
	}{
		"more containers than have memory": {
			world: func(w *world) { w.shares.Smallest = 1 },
			piece: piece{device: "gpu-00-00", memory: "3Mi", config: config("ShareConfig", `"containers":4`)},
			is:    gpu.ErrInvalid, says: "3Mi of memory for 4 containers leaves none to compute with; ask for more, or declare fewer containers in the ShareConfig",
		},
		"an older driver": {
			world: func(w *world) { w.limits = false },
			piece: piece{device: "gpu-00-00", memory: "20Gi", config: require("driver")},
			is:    gpu.ErrNotSupported, says: "require: not supported: the memory of the share is held at the level cooperative on this node",
		},
		"a plain share with an older driver": {
			world: func(w *world) { w.limits = false },
			piece: piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain+`,"require":"cooperative"`)},
			is:    gpu.ErrNotSupported, says: "at the level none on this node",
		},
		"MPS without namespaces": {
			piece: piece{device: "gpu-00-00", memory: "20Gi", config: require("driver")},
			is:    gpu.ErrNotSupported, says: "require: not supported: the compute of the share is held at the level cooperative on this node, and the ShareConfig requires daemon",
		},
		"cooperative, and it is": {piece: piece{device: "gpu-00-00", memory: "20Gi", config: require("cooperative")}},
		"a plain share":          {piece: piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain+`,"require":"driver"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLimitWorld(t, 1)
			if c.world != nil {
				c.world(w)
			}
			m := w.start()
			_, err := m.Prepare(once(), pieces("c", c.piece))
			if !errors.Is(err, c.is) || c.is != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			if left := w.files() + w.held(m); c.is != nil && left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// What runs is not changed by an update of the driver or the agent.
func TestAClaimKeepsTheMechanismThatItWasPreparedWith(t *testing.T) {
	w := newLimitWorld(t, 1)
	w.limits = false
	before := pieces("before", piece{device: "gpu-00-00", memory: "20Gi"})
	must(t, errOf(w.start().Prepare(once(), before)))
	old := w.specText(before)
	w.limits = true // an update of the driver
	m, _ := w.restart(once())
	after := pieces("after", piece{device: "gpu-00-00", memory: "20Gi"})
	must(t, errOf(m.Prepare(once(), after)))
	require.Same(t, "the claim from before", old, w.specText(before))
	limited := w.specText(after)
	w.limits = false // and back
	if m, _ = w.restart(once()); w.specText(after) != limited {
		t.Errorf("the limited claim is now\n%s", w.specText(after))
	}
	if got, want := levels(t, m), []string{"after: driver, cooperative", "before: cooperative, cooperative"}; cmp.Diff(want, got) != "" {
		t.Errorf("held %v, want %v", got, want)
	}
	// The ceilings of the daemon hold for the claim from before.
	if got, want := w.supervisor.String(), "gpu-00-00 of GPU-0=20480M, 25%\n"; got != want {
		t.Errorf("daemons %s, want %s", got, want)
	}
}

func levels(t *testing.T, m *claim.Manager) (all []string) {
	t.Helper()
	held, err := m.Held(once())
	must(t, err)
	for _, h := range held {
		memory, compute := h.Devices[0].Terms.Enforcement()
		all = append(all, fmt.Sprintf("%s: %s, %s", h.Name, memory, compute))
	}
	return all
}

// An agent that was installed without the hook must not replace a spec that has it.
func TestAnAgentWithoutTheHookKeepsTheSpec(t *testing.T) {
	w := newLimitWorld(t, 1)
	c := pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
	must(t, errOf(w.start().Prepare(once(), c)))
	before := w.specText(c)
	w.options = func(o *claim.Options) {
		o.Limits.Hook = func(string, gpu.PCIAddress, uint64, int) (gpu.Hook, error) {
			return gpu.Hook{}, gpu.ErrNotFound
		}
	}
	m := w.start()
	require.Error(t, "recover", errOf(m.Recover(once())), gpu.ErrNotFound)
	require.Same(t, "the spec afterwards", before, w.specText(c))
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.files())
}

// One write is before the MPS daemon starts, one between it and the files, and one at the
// end.
func TestTheFilesOfALimitedShareAreRecordedAtOnce(t *testing.T) {
	w, disk := newLimitWorld(t, 1), &countingDisk{}
	w.computeModes, w.disk = nil, disk
	must(t, errOf(w.start().Prepare(once(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"}))))
	if disk.writes != 3 {
		t.Errorf("%d writes of the record, want 3", disk.writes)
	}
}

// specText returns the CDI spec of a claim without white space.
func (w *world) specText(c *resourceapi.ResourceClaim) string {
	w.t.Helper()
	data, err := os.ReadFile(w.specPath(c))
	must(w.t, err)
	return strings.Join(strings.Fields(string(data)), "")
}

func TestTheInventoryIsUpdatedBeforeEachAttemptAndARepeatedOneIsReported(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	w.supervisor.err = gpu.ErrNotReady
	attempts := 0
	w.options = func(o *claim.Options) {
		o.BeforePrepare = func(context.Context) {
			if attempts++; attempts == 2 {
				w.supervisor.err = nil
			}
		}
	}
	var repeated error
	if _, err := w.start().Prepare(t.Context(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"}), func(err error) { repeated = err }); err != nil {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
	require.Error(t, "the repeated attempt", repeated, gpu.ErrNotReady)
}

// MPS limits the clients as well, by the whole limit of the container and no less: a driver
// that counts their memory in the cgroup of the server would limit none.
func TestMPSHoldsWhatTheDriverHolds(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces bool
		config     string
		daemons    string
	}{
		"namespaces":             {true, "", "gpu-00-00 of GPU-0; sharec0 25% 20480M\n"},
		"two containers":         {true, config("ShareConfig", `"containers":2`), "gpu-00-00 of GPU-0; sharec0 25% 10240M\n"},
		"several processes":      {true, config("ShareConfig", `"processes":2`), "gpu-00-00 of GPU-0; sharec0 12% 20480M\n"},
		"ceilings of the daemon": {false, "", "gpu-00-00 of GPU-0=20480M, 25%\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLimitWorld(t, 1)
			w.setNamespaces(c.namespaces)
			claimed := pieces("c", piece{device: "gpu-00-00", memory: "20Gi", config: c.config})
			must(t, errOf(w.start().Prepare(once(), claimed)))
			require.Same(t, "daemons", c.daemons, w.supervisor.String())
			if text := w.specText(claimed); c.namespaces && strings.Contains(text, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
				t.Errorf("a client of a namespace has a limit of its own: %s", text)
			}
		})
	}
}

// limitOccupied lists the containers that the hook has admitted. The names of their cgroups
// are their IDs.
func (w *world) limitOccupied() *occupants {
	o := w.occupied()
	o.living = map[string]int{}
	before := w.options
	w.options = func(options *claim.Options) {
		before(options)
		options.Occupancy.Admitted = func(_ context.Context, device string) (ids []string, err error) {
			all, err := w.limitFolder().Admitted(device)
			for _, l := range all {
				ids = append(ids, filepath.Base(l.Cgroup))
			}
			return ids, err
		}
	}
	return o
}

// admit notes that the hook has limited the container of each pod of a claim.
func (w *world) admit(t *testing.T, m *claim.Manager, uid types.UID, id string) {
	t.Helper()
	all, err := m.LimitedDevices(t.Context())
	must(t, err)
	for _, l := range all {
		if l.Claim.UID == uid {
			must(t, errOf(w.limitFolder().Admit(l.ID, containerlimits.Limit{Cgroup: "/kubepods/" + id, ID: 4711, GPU: "0000:00:00.0", Bytes: 1}, 1)))
		}
	}
}

func TestContainersWithoutTheirLimit(t *testing.T) {
	const part = "gpu-00-00"
	in := func(pod, container string) gpu.Task {
		return gpu.Task{Command: "python", PodUID: pod, ContainerID: container}
	}
	without := []claim.Unlimited{{Claims: []types.UID{"uid-a"}, PID: 4711}}
	for name, c := range map[string]struct {
		runs    func(*occupants)
		want    []claim.Unlimited
		unknown bool
	}{
		"no process":                        {runs: func(*occupants) {}},
		"a container with its limit":        {runs: func(o *occupants) { o.add(0, gpu.Process{PID: 4711}, in("pod-a", "limited")) }},
		"a container without":               {runs: func(o *occupants) { o.add(0, gpu.Process{PID: 4711}, in("pod-a", "other")) }, want: without},
		"a sandbox in the pod's own cgroup": {runs: func(o *occupants) { o.add(0, gpu.Process{PID: 4711}, in("pod-a", "")) }, want: without},
		"several processes of a container": {
			runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, in("pod-a", "other"))
				o.add(0, gpu.Process{PID: 4712}, in("pod-a", "other"))
			}, want: without,
		},
		"a client of MPS with its limit": {runs: func(o *occupants) {
			o.add(0, gpu.Process{PID: 41}, gpu.Task{Command: "nvidia-cuda-mps", OnHost: true})
			o.add(0, gpu.Process{PID: 4711}, in("pod-a", "limited"))
		}},
		"a container of a pod of a PodGroup": {
			runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, in("pod-group", "other"))
				o.consumers["uid-a"] = []types.UID{"pod-group"}
			}, want: without,
		},
		"on another GPU":                {runs: func(o *occupants) { o.add(1, gpu.Process{PID: 4711}, in("pod-a", "other")) }},
		"a pod without a claim":         {runs: func(o *occupants) { o.add(0, gpu.Process{PID: 4711}, in("pod-gone", "other")) }},
		"a pod that also monitors GPUs": {runs: func(o *occupants) { o.add(0, gpu.Process{PID: 4711}, in("pod-m", "other")) }},
		"a program of the host":         {runs: func(o *occupants) { o.runs(0, 4711, "") }},
		"a container that has ended": {runs: func(o *occupants) {
			o.add(0, gpu.Process{PID: 4711}, in("pod-a", "other"))
			o.ends(4711)
		}},
		"a GPU that does not answer": {runs: func(o *occupants) {
			o.add(0, gpu.Process{PID: 4711}, in("pod-a", "other"))
			o.errs[gpu.PCIAddress{}] = gpu.ErrTimeout
		}, unknown: true},
		"a driver that lists no processes": {runs: func(o *occupants) { o.errs[gpu.PCIAddress{}] = gpu.ErrNotSupported }, unknown: true},
		"pods that cannot be read": {runs: func(o *occupants) {
			o.add(0, gpu.Process{PID: 4711}, in("pod-late", "other"))
			o.consumersErr = errors.New("no proc")
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLimitWorld(t, 2)
			o := w.limitOccupied()
			m := w.start()
			for _, holder := range []*resourceapi.ResourceClaim{
				usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a", "pod-m"), usedBy(monitor("m"), "pod-m"), usedBy(newClaim("whole", "gpu-01-00"), "pod-a"),
			} {
				must(t, errOf(m.Prepare(once(), holder)))
			}
			w.admit(t, m, "uid-a", "limited")
			c.runs(o)
			ctx, log := logged(t.Context())
			got, err := m.CheckLimits(ctx)
			must(t, err)
			if len(got) != 1 || got[0].Device.String() != part || !cmp.Equal(got[0].Claims, []types.UID{"uid-a"}) {
				t.Fatalf("checks %+v, want one of the limited device", got)
			}
			if diff := cmp.Diff(c.want, got[0].Unlimited); diff != "" || (got[0].Err != nil) != c.unknown {
				t.Errorf("%v, containers without a limit (-want +got):\n%s", got[0].Err, diff)
			}
			if named := strings.Contains(log.String(), "without its memory limit"); named != (len(c.want) > 0) {
				t.Errorf("the log names the container: %t\n%s", named, log)
			}
		})
	}
}

// A container ends while its GPU is read, and its files are removed.
func TestAContainerThatEndsMeanwhileIsNotWithoutItsLimit(t *testing.T) {
	w := newLimitWorld(t, 1)
	o := w.limitOccupied()
	before := w.options
	w.options = func(options *claim.Options) {
		before(options)
		options.Occupancy.Admitted = func(context.Context, string) ([]string, error) {
			o.ends(4711)
			o.mu.Lock()
			o.tasks[4711] = gpu.Task{Command: "other", Started: 8} // the PID passes on
			o.mu.Unlock()
			return nil, nil
		}
	}
	m := w.start()
	must(t, errOf(m.Prepare(once(), usedBy(pieces("a", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-a"))))
	o.add(0, gpu.Process{PID: 4711}, gpu.Task{Command: "python", Started: 7, PodUID: "pod-a", ContainerID: "limited"})
	got, err := m.CheckLimits(t.Context())
	if err != nil || len(got) != 1 || got[0].Unlimited != nil || got[0].Err != nil {
		t.Errorf("%+v, %v, want no container without its limit", got, err)
	}
}

func TestLimitsAreUnknownToAnAgentThatSeesNoPods(t *testing.T) {
	w := newLimitWorld(t, 1)
	w.occupied()
	m := w.start()
	must(t, errOf(m.Prepare(once(), usedBy(pieces("a", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-a"))))
	got, err := m.CheckLimits(t.Context())
	if err != nil || len(got) != 1 || !errors.Is(got[0].Err, gpu.ErrNotSupported) {
		t.Errorf("%+v, %v, want unknown limits", got, err)
	}
}
