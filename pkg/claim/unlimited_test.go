// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// limitOccupied lists the containers that the hook has admitted. The names of their cgroups
// are their IDs.
func (w *world) limitOccupied() *occupants {
	o := w.occupied()
	o.living = map[string]int{}
	before := w.options
	w.options = func(options *claim.Options) {
		before(options)
		options.Occupancy.Admitted = func(device string) (ids []string, err error) {
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
	all, err := m.Limited(t.Context())
	must(t, err)
	for _, l := range all {
		if l.Claim.UID == uid {
			_, err := w.limitFolder().Admit(l.ID, containerlimits.Limit{Cgroup: "/kubepods/" + id, ID: 4711, GPU: "0000:00:00.0", Bytes: 1}, 1)
			must(t, err)
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
				if _, err := m.Prepare(once(), holder); err != nil {
					t.Fatal(err)
				}
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
		options.Occupancy.Admitted = func(string) ([]string, error) {
			o.ends(4711)
			o.mu.Lock()
			o.tasks[4711] = gpu.Task{Command: "other", Started: 8} // the PID passes on
			o.mu.Unlock()
			return nil, nil
		}
	}
	m := w.start()
	if _, err := m.Prepare(once(), usedBy(pieces("a", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-a")); err != nil {
		t.Fatal(err)
	}
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
	if _, err := m.Prepare(once(), usedBy(pieces("a", piece{device: "gpu-00-00", memory: "10Gi"}), "pod-a")); err != nil {
		t.Fatal(err)
	}
	got, err := m.CheckLimits(t.Context())
	if err != nil || len(got) != 1 || !errors.Is(got[0].Err, gpu.ErrNotSupported) {
		t.Errorf("%+v, %v, want unknown limits", got, err)
	}
}
