// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// occupants is a fake of the processes on a node's GPUs. It is also a fake of the
// pods of claims in the API server.
type occupants struct {
	mu    sync.Mutex
	on    map[gpu.PCIAddress][]gpu.Process
	tasks map[int]gpu.Task
	// pods by claim UID, as the API server has them.
	pods   map[types.UID][]types.UID
	apiErr error
	// taskErr is the error of reading a process.
	taskErr error
	// consumers by claim UID, as the kernel shows them.
	consumers    map[types.UID][]types.UID
	consumersErr error
	// kubelet has the pods of claims by UID; nil if it cannot be read.
	kubelet map[types.UID][]types.UID
	// errs are the errors that GPUs return.
	errs map[gpu.PCIAddress]error
	// hangs are GPUs that do not answer until the caller gives up.
	hangs map[gpu.PCIAddress]bool
	// living are the pods with a living process; nil if the agent does not see them.
	living    map[string]int
	livingErr error
	// stubs are the pods of processes that wait to start a container, by PID.
	stubs map[int]types.UID
	// lists and reads count the calls to the GPUs and to the API server.
	lists, reads int
}

// occupied makes the world's processes list the users of its GPUs.
func (w *world) occupied() *occupants {
	o := &occupants{
		on: map[gpu.PCIAddress][]gpu.Process{}, tasks: map[int]gpu.Task{}, pods: map[types.UID][]types.UID{}, consumers: map[types.UID][]types.UID{},
		errs: map[gpu.PCIAddress]error{}, hangs: map[gpu.PCIAddress]bool{},
	}
	before := w.options
	w.options = func(options *claim.Options) {
		if before != nil {
			before(options)
		}
		options.Occupancy = &claim.Occupancy{Hardware: o, Task: o.task, Pods: o.podsOf, Consumers: o.consumersOf}
		options.Occupancy.KubeletPods = o.kubeletPods
		if o.living != nil {
			options.Occupancy.Lives, options.Occupancy.EndStub = o.lives, o.endStub
		}
	}
	return o
}

func (o *occupants) lives(pod types.UID) (pid int, lives bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pid, lives = o.living[string(pod)]
	return pid, lives, o.livingErr
}

func (o *occupants) endStub(_ context.Context, pid int, pod types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stubs[pid] == pod {
		delete(o.living, string(pod))
	}
}

func (o *occupants) kubeletPods() (map[types.UID][]types.UID, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kubelet == nil {
		return nil, gpu.ErrNotSupported
	}
	return maps.Clone(o.kubelet), nil
}

// runs starts a process on the GPU of that bus, in a pod. If pod is "", the process is
// on the host.
func (o *occupants) runs(bus uint8, pid int, pod string) {
	o.add(bus, gpu.Process{PID: pid}, gpu.Task{Command: "python", PodUID: pod})
}

func (o *occupants) add(bus uint8, p gpu.Process, task gpu.Task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	address := gpu.PCIAddress{Bus: bus}
	o.on[address] = append(o.on[address], p)
	o.tasks[p.PID] = task
}

// ends ends a process; its GPU may list it for a moment longer.
func (o *occupants) ends(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tasks, pid)
}

func (o *occupants) Check(ctx context.Context, address gpu.PCIAddress) error {
	return o.answer(ctx, address)
}

func (o *occupants) answer(ctx context.Context, address gpu.PCIAddress) error {
	o.mu.Lock()
	hangs, err := o.hangs[address], o.errs[address]
	o.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fmt.Errorf("%w: no answer from the driver", gpu.ErrTimeout)
	}
	return err
}

func (o *occupants) Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error) {
	if err := o.answer(ctx, address); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists++
	return slices.Clone(o.on[address]), nil
}

func (o *occupants) task(pid int) (gpu.Task, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	task, ok := o.tasks[pid]
	if !ok {
		return gpu.Task{}, fmt.Errorf("process %d: %w", pid, gpu.ErrNotFound)
	}
	if o.taskErr != nil {
		return gpu.Task{}, o.taskErr
	}
	return task, nil
}

func (o *occupants) podsOf(_ context.Context, c claim.Ref) ([]types.UID, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	return o.pods[c.UID], o.apiErr
}

func noConsumers([]claim.Ref) (map[types.UID][]types.UID, error) { return nil, nil }

func (o *occupants) consumersOf(claims []claim.Ref) (map[types.UID][]types.UID, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[types.UID][]types.UID{}
	for _, c := range claims {
		found[c.UID] = o.consumers[c.UID]
	}
	return found, o.consumersErr
}

// usedBy returns the claim reserved for the pods.
func usedBy(c *resourceapi.ResourceClaim, pods ...types.UID) *resourceapi.ResourceClaim {
	c.Status.ReservedFor = nil
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: string(pod), UID: pod})
	}
	return c
}

// usedByGroup returns the claim reserved for a PodGroup, which its pods do not show.
func usedByGroup(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "group"}}
	return c
}

// logged returns a context and the buffer that its log messages are written to.
func logged(ctx context.Context) (context.Context, *bytes.Buffer) {
	var log bytes.Buffer
	return klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))), &log
}

// After a forced deletion only the hardware lists the process.
func TestADeviceIsNotHandedOutWhileAForeignProcessIsOnIt(t *testing.T) {
	const part = "gpu-00-00"
	for name, c := range map[string]struct {
		wanted  *resourceapi.ResourceClaim
		holders []*resourceapi.ResourceClaim
		runs    func(*occupants)
		refused bool
		says    string
	}{
		"a whole GPU, a pod's process on it": {
			wanted: newClaim("c", part), runs: func(o *occupants) { o.runs(0, 4711, "pod-gone") }, refused: true,
			says: "process 4711 of another pod still uses it",
		},
		"a whole GPU, a program of the host on it": {
			wanted: newClaim("c", part), refused: true, runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, gpu.Task{Command: "train\n", OnHost: true})
			},
			says: `process 4711 of the host (command "train\n") still uses it`,
		},
		"a whole GPU, a process on another one": {
			wanted: newClaim("c", part), runs: func(o *occupants) { o.runs(1, 4711, "pod-gone") },
		},
		"a whole GPU, a process that has ended": {
			wanted: newClaim("c", part), runs: func(o *occupants) { o.runs(0, 4711, "pod-gone"); o.ends(4711) },
		},
		"a whole GPU, an MPS server of the node": {
			wanted: newClaim("c", part), runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, gpu.Task{Command: "nvidia-cuda-mps", OnHost: true})
			},
		},
		"a whole GPU, a container's process that calls itself an MPS server": {
			wanted: newClaim("c", part), refused: true, runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, gpu.Task{Command: "nvidia-cuda-mps", PodUID: "pod-hostile"})
			},
		},
		"a whole GPU, the display server of the host": {
			wanted: newClaim("c", part), runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711, Graphics: true}, gpu.Task{Command: "Xorg"})
			},
		},
		"a whole GPU, a container that draws": {
			wanted: newClaim("c", part), refused: true, runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711, Graphics: true}, gpu.Task{Command: "render", PodUID: "pod-gone"})
			},
		},
		"a whole GPU, a process of the claim's own pod": {
			wanted: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.runs(0, 4711, "pod-c") },
		},
		"a share next to a share in use": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a")},
			runs:    func(o *occupants) { o.runs(0, 4711, "pod-a") },
		},
		"a share next to a share that another pod uses by now": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a")},
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-late")
				o.pods["uid-a"] = []types.UID{"pod-a", "pod-late"}
			},
		},
		"a share of a GPU with a foreign process": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a")},
			runs:    func(o *occupants) { o.runs(0, 41, "pod-a"); o.runs(0, 4711, "pod-gone") }, refused: true,
		},
		"a share of a GPU with a pod that the API server is not heard about": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a")},
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-late")
				o.apiErr = errors.New("resourceclaims team-a/a: connection refused")
			}, refused: true, says: "the API server does not answer whether the process belongs to a claim that shares the device",
		},
		"a share next to a share that a PodGroup uses": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedByGroup(pieces("a", piece{device: part, memory: "10Gi"}))},
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-of-group")
				o.consumers["uid-a"] = []types.UID{"pod-of-group"}
				o.apiErr = errors.New("no API server is needed")
			},
		},
		"a share next to a share that a PodGroup uses, and a foreign process": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedByGroup(pieces("a", piece{device: part, memory: "10Gi"}))},
			runs: func(o *occupants) {
				o.runs(0, 41, "pod-of-group")
				o.runs(0, 4711, "pod-gone")
				o.consumers["uid-a"], o.consumers["uid-c"] = []types.UID{"pod-of-group"}, []types.UID{"pod-c"}
			}, refused: true,
		},
		"a whole GPU of a PodGroup whose record was lost": {
			wanted: usedByGroup(newClaim("c", part)), runs: func(o *occupants) {
				o.runs(0, 4711, "pod-of-group")
				o.consumers["uid-c"] = []types.UID{"pod-of-group"}
			},
		},
		"a whole GPU, if the pods with devices cannot be read": {
			wanted: newClaim("c", part), runs: func(o *occupants) {
				o.runs(0, 4711, "pod-gone")
				o.consumersErr = errors.New("no proc")
			}, refused: true,
		},
		"a share with a program of the host": {
			wanted:  pieces("c", piece{device: part, memory: "10Gi"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a")},
			runs:    func(o *occupants) { o.runs(0, 4711, "") }, refused: true,
		},
		"a time slice next to one in use": {
			wanted:  pieces("c", piece{device: part + "-ts"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part + "-ts"}), "pod-a")},
			runs:    func(o *occupants) { o.runs(0, 4711, "pod-a") },
		},
		"a time slice of a GPU with a foreign process": {
			wanted:  pieces("c", piece{device: part + "-ts"}),
			holders: []*resourceapi.ResourceClaim{usedBy(pieces("a", piece{device: part + "-ts"}), "pod-a")},
			runs:    func(o *occupants) { o.runs(0, 4711, "pod-gone") }, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			o := w.occupied()
			m := w.start()
			for _, holder := range c.holders {
				must(t, errOf(m.Prepare(t.Context(), holder)))
			}
			before := w.left(m)
			c.runs(o)
			ctx, log := logged(once())
			_, err := m.Prepare(ctx, c.wanted)
			if !c.refused {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, gpu.ErrInUse) || !gpu.Transient(err) || !strings.Contains(err.Error(), "process 4711") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that names the process", err, gpu.ErrInUse)
			}
			wantShort(t, err)
			// The command of a process of the host is the administrator's, and no tenant's.
			ofHost := strings.Contains(err.Error(), "of the host")
			for _, secret := range []string{"pod-", "python", "team-a/a"} {
				if strings.Contains(fmt.Sprint(err), secret) && (secret != "python" || !ofHost) {
					t.Errorf("an event names %q, which is another tenant's: %v", secret, err)
				}
			}
			if !strings.Contains(log.String(), "podUID=") {
				t.Errorf("the log names no pod: %s", log)
			}
			require.Same(t, "left afterwards", before, w.left(m))
		})
	}
}

// Pods run on a prepared claim, so preparing it again lists no processes and cannot be
// refused.
func TestAPreparedClaimIsPreparedAgainWithAnyProcessOnItsGPU(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	o := w.occupied()
	m, c := w.start(), usedBy(newClaim("c", "gpu-00-00"), "pod-c")
	must(t, errOf(m.Prepare(once(), c)))
	o.runs(0, 1, "pod-c")
	o.runs(0, 2, "pod-late")
	o.errs[gpu.PCIAddress{}] = gpu.ErrLost
	if o.lists != 1 || o.reads != 0 {
		t.Errorf("%d lists of processes and %d reads of the API to prepare, want 1 and 0", o.lists, o.reads)
	}
	for _, again := range []*resourceapi.ResourceClaim{c, usedBy(newClaim("c", "gpu-00-00"), "pod-c", "pod-late")} {
		if _, err := m.Prepare(once(), again); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if o.lists != 1 || o.reads != 0 {
		t.Errorf("%d lists of processes and %d reads of the API in all, want 1 and 0", o.lists, o.reads)
	}
}

func TestAGPUThatDoesNotAnswerIsNotHandedOut(t *testing.T) {
	for _, want := range []error{gpu.ErrLost, gpu.ErrTimeout, gpu.ErrNotReady} {
		w := newWorld(t, t.TempDir(), 2)
		o := w.occupied()
		w.options = func(options *claim.Options) {
			options.Occupancy = &claim.Occupancy{Hardware: lost{o, gpu.PCIAddress{Bus: 1}, want}, Task: o.task, Pods: o.podsOf, Consumers: o.consumersOf}
		}
		m := w.start()
		require.Error(t, "error", errOf(m.Prepare(once(), newClaim("both", "gpu-00-00", "gpu-01-00"))), want)
		wantNothing(t, w.files())
		if _, err := m.Prepare(once(), newClaim("one", "gpu-00-00")); err != nil {
			t.Errorf("the other GPU: %v", err)
		}
	}
}

// lost is hardware with a GPU that does not answer, although listing its processes
// succeeds.
type lost struct {
	*occupants
	gpu gpu.PCIAddress
	err error
}

func (l lost) Check(_ context.Context, address gpu.PCIAddress) error {
	if address == l.gpu {
		return fmt.Errorf("check GPU at %s: %w", address, l.err)
	}
	return nil
}

func TestADriverThatCannotListProcessesHandsOutItsGPUs(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	o := w.occupied()
	w.options = func(options *claim.Options) {
		options.Occupancy = &claim.Occupancy{Hardware: listless{o}, Task: o.task, Pods: o.podsOf, Consumers: o.consumersOf}
	}
	m, c := w.start(), newClaim("c", "gpu-00-00")
	if _, err := m.Prepare(once(), c); err != nil {
		t.Error(err)
	}
	must(t, m.Unprepare(once(), c.UID))
}

// listless is a driver that cannot list processes.
type listless struct{ *occupants }

func (listless) Processes(context.Context, gpu.PCIAddress) ([]gpu.Process, error) {
	return nil, fmt.Errorf("list processes: %w", gpu.ErrNotSupported)
}

func TestAGPUWithAFaultIsNotHandedOut(t *testing.T) {
	const fault = "XID 79; reset the GPU: nvidia-smi --gpu-reset -i 0000:00:00.0"
	for _, wanted := range []*resourceapi.ResourceClaim{
		newClaim("c", "gpu-00-00"), pieces("c", piece{device: "gpu-00-00", memory: "10Gi"}), pieces("c", piece{device: "gpu-00-00-ts"}),
	} {
		w := newShareWorld(t, t.TempDir(), 1)
		held, address := pieces("held", piece{device: wanted.Status.Allocation.Devices.Results[0].Device, memory: "1Gi"}), gpu.PCIAddress{}
		if strings.HasSuffix(held.Status.Allocation.Devices.Results[0].Device, "-ts") {
			held = pieces("held", piece{device: "gpu-00-00-ts"})
		}
		m := w.start()
		must(t, errOf(m.Prepare(once(), held)))
		w.conditions = map[gpu.PCIAddress]use.Conditions{address: {Fault: fault}}
		_, err := m.Prepare(once(), wanted)
		if !errors.Is(err, gpu.ErrUnhealthy) || gpu.Transient(err) || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %v that says what to do", err, gpu.ErrUnhealthy)
		}
		// A prepared claim keeps its GPU.
		if _, err := m.Prepare(once(), held); err != nil {
			t.Errorf("the prepared claim: %v", err)
		}
	}
}

func TestAClaimIsNotUndoneWhileItsProcessesRun(t *testing.T) {
	const part = "gpu-00-00"
	neighbour := usedBy(pieces("n", piece{device: part, memory: "10Gi"}), "pod-n")
	for name, c := range map[string]struct {
		prepared *resourceapi.ResourceClaim
		others   []*resourceapi.ResourceClaim
		lose     bool // its record
		runs     func(*occupants)
		kept     bool
	}{
		"a whole GPU, its pod's process": {
			prepared: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.runs(0, 4711, "pod-c") }, kept: true,
		},
		"a whole GPU, the process of a pod that came later": {
			prepared: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.runs(0, 4711, "pod-late") }, kept: true,
		},
		"a whole GPU without a record": {
			prepared: newClaim("c", part), lose: true, runs: func(o *occupants) { o.runs(0, 4711, "pod-c") }, kept: true,
		},
		"a whole GPU, a program of the host": {
			prepared: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.runs(0, 4711, "") },
		},
		"a whole GPU that is lost": {
			prepared: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.errs[gpu.PCIAddress{}] = gpu.ErrLost },
		},
		"a whole GPU that is gone": {
			prepared: usedBy(newClaim("c", part), "pod-c"), runs: func(o *occupants) { o.errs[gpu.PCIAddress{}] = gpu.ErrNotFound },
		},
		"two GPUs, one is lost and a process is on the other": {
			prepared: usedBy(newClaim("c", part, "gpu-01-00"), "pod-c"), kept: true, runs: func(o *occupants) {
				o.errs[gpu.PCIAddress{}] = gpu.ErrLost
				o.runs(1, 4711, "pod-c")
			},
		},
		"a share, its pod's process": {
			prepared: usedBy(pieces("c", piece{device: part, memory: "10Gi"}), "pod-c"), others: []*resourceapi.ResourceClaim{neighbour},
			runs: func(o *occupants) { o.runs(0, 4711, "pod-c") }, kept: true,
		},
		"a share, its neighbour's process": {
			prepared: usedBy(pieces("c", piece{device: part, memory: "10Gi"}), "pod-c"), others: []*resourceapi.ResourceClaim{neighbour},
			runs: func(o *occupants) { o.runs(0, 4711, "pod-n") },
		},
		"a share without a record, its neighbour's process": {
			prepared: pieces("c", piece{device: part, memory: "10Gi"}), lose: true, others: []*resourceapi.ResourceClaim{neighbour},
			runs: func(o *occupants) { o.runs(0, 4711, "pod-n") },
		},
		"a share of a PodGroup, the process of a pod of the group": {
			prepared: usedByGroup(pieces("c", piece{device: part, memory: "10Gi"})), others: []*resourceapi.ResourceClaim{neighbour}, kept: true,
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-of-group")
				o.consumers["uid-c"] = []types.UID{"pod-of-group"}
			},
		},
		"a share of a PodGroup, its neighbour's process": {
			prepared: usedByGroup(pieces("c", piece{device: part, memory: "10Gi"})), others: []*resourceapi.ResourceClaim{neighbour},
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-n")
				o.consumers["uid-c"], o.consumers["uid-n"] = []types.UID{"pod-of-group"}, []types.UID{"pod-n"}
			},
		},
		"a share, if the pods with devices cannot be read": {
			prepared: usedBy(pieces("c", piece{device: part, memory: "10Gi"}), "pod-c"), kept: true,
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-late")
				o.consumersErr = errors.New("no proc")
			},
		},
		"a share, MPS servers": {
			prepared: usedBy(pieces("c", piece{device: part, memory: "10Gi"}), "pod-c"),
			runs: func(o *occupants) {
				o.add(0, gpu.Process{PID: 4711}, gpu.Task{Command: "nvidia-cuda-mps", OnHost: true})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newShareWorld(t, dir, 2)
				o := w.occupied()
				m := w.start()
				for _, other := range c.others {
					must(t, errOf(m.Prepare(t.Context(), other)))
				}
				without := w.left(m)
				must(t, errOf(m.Prepare(t.Context(), c.prepared)))
				if c.lose {
					must(t, os.Remove(w.recordPath(c.prepared)))
				}
				before := w.left(m)
				c.runs(o)
				err := m.Unprepare(t.Context(), c.prepared.UID)
				if !c.kept {
					if diff := cmp.Diff(without, w.left(m)); err != nil || diff != "" {
						t.Errorf("%v, left (-want +got):\n%s", err, diff)
					}
					return
				}
				if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "process 4711") || !strings.Contains(err.Error(), "see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/operate.md") {
					t.Errorf("got %v, want %v that says what to do", err, gpu.ErrInUse)
				}
				wantShort(t, err)
				require.Same(t, "left afterwards", before, w.left(m))
				// Reconciliation, which reads the API server, does not undo it
				// either.
				gone, err := m.Held(t.Context())
				must(t, err)
				for _, held := range gone {
					if held.UID != c.prepared.UID {
						continue
					}
					if released, err := m.Release(t.Context(), held, nil); released || !errors.Is(err, gpu.ErrInUse) {
						t.Errorf("released %t, %v, want %v", released, err, gpu.ErrInUse)
					}
				}
				// The claim is undone as soon as the process has ended.
				o.ends(4711)
				err = m.Unprepare(t.Context(), c.prepared.UID)
				if diff := cmp.Diff(without, w.left(m)); err != nil || diff != "" {
					t.Errorf("in the end %v, left (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

// Processes that are being killed get a moment to end.
func TestUnprepareWaitsForProcessesThatEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, 1)
		o := w.occupied()
		m, c := w.start(), usedBy(newClaim("c", "gpu-00-00"), "pod-c")
		must(t, errOf(m.Prepare(t.Context(), c)))
		o.runs(0, 4711, "pod-c")
		time.AfterFunc(2*time.Second, func() { o.ends(4711) })
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Error(err)
		}
	})
}

// The claim was allocated other devices while its old devices are still in use.
func TestDevicesThatAClaimLosesAreNotFreedWhileItsProcessesRun(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	o := w.occupied()
	m := w.start()
	must(t, errOf(m.Prepare(once(), usedBy(newClaim("c", "gpu-00-00"), "pod-c"))))
	o.runs(0, 4711, "pod-c")
	anew := usedBy(newClaim("c", "gpu-01-00"), "pod-new")
	require.Error(t, "error", errOf(m.Prepare(once(), anew)), gpu.ErrInUse)
	require.Same(t, "held", "team-a/c Prepared gpu-00-00\n", w.held(m))
	o.ends(4711)
	if _, err := m.Prepare(once(), anew); err != nil {
		t.Error(err)
	}
}

// A GPU that hangs does not keep its pod Terminating. It does not delay the response
// to the kubelet either.
func TestAClaimOnAGPUThatHangsIsUnpreparedInTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, 8)
		o := w.occupied()
		var devices []string
		for bus := range 8 {
			devices = append(devices, fmt.Sprintf("gpu-%02x-00", bus))
		}
		m, c := w.start(), newClaim("c", devices...)
		must(t, errOf(m.Prepare(t.Context(), c)))
		for bus := range 8 {
			o.hangs[gpu.PCIAddress{Bus: uint8(bus)}] = true
		}
		start := time.Now()
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > intime {
			t.Errorf("took %v, want at most %v", took, intime)
		}
	})
}

// Reading the claim has used a part of the kubelet's time already.
func TestACallEndsBeforeTheKubeletsDeadline(t *testing.T) {
	for name, left := range map[string]time.Duration{"all of it": 45 * time.Second, "less": 12 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newShareWorld(t, dir, 2)
				o := w.occupied()
				w.timeSlices.err = fmt.Errorf("%w: busy", gpu.ErrTimeout)
				before := w.options
				w.options = func(options *claim.Options) {
					before(options)
					options.BeforePrepare = func(ctx context.Context) { <-ctx.Done() }
				}
				asking := w.start()
				w.options = before
				m := w.start()
				o.runs(0, 4711, "pod-gone")
				for name, prepare := range map[string]func(context.Context) error{
					"a foreign process": func(ctx context.Context) error {
						_, err := m.Prepare(ctx, newClaim("c", "gpu-00-00"))
						return err
					},
					"a device plugin that does not answer": func(ctx context.Context) error {
						_, err := asking.Prepare(ctx, newClaim("c", "gpu-00-00"))
						return err
					},
					"a time slice that cannot be changed": func(ctx context.Context) error {
						_, err := m.Prepare(ctx, pieces("c", piece{device: "gpu-01-00-ts", config: interval(gpu.TimeSliceLong)}))
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), left)
					err := prepare(ctx)
					if err == nil || ctx.Err() != nil {
						t.Errorf("%s: %v, and the kubelet's deadline has passed: %v", name, err, ctx.Err())
					}
					cancel()
				}
			})
		})
	}
}

// migHardware lists the simulator's processes, in pods.
type migHardware struct {
	*migWorld
	tasks map[int]gpu.Task
}

func (h migHardware) Check(context.Context, gpu.PCIAddress) error { return nil }

func (h migHardware) Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error) {
	return h.lib.Processes(context.WithoutCancel(ctx), address)
}

func (h migHardware) task(pid int) (gpu.Task, error) {
	task, ok := h.tasks[pid]
	if !ok {
		return task, gpu.ErrNotFound
	}
	return task, nil
}

// occupied makes the world's processes list the users of its GPUs.
func (w *migWorld) occupied(tasks map[int]gpu.Task) {
	before := w.options
	w.options = func(options *claim.Options) {
		if before != nil {
			before(options)
		}
		h := migHardware{w, tasks}
		options.Occupancy = &claim.Occupancy{Hardware: h, Task: h.task, Pods: func(context.Context, claim.Ref) ([]types.UID, error) { return nil, nil }, Consumers: noConsumers}
	}
}

func TestAProcessUsesOnlyItsOwnMIGDevice(t *testing.T) {
	dir := t.TempDir()
	w := newMIGWorld(t, dir, "dgx-h100").withSharing()
	w.occupied(map[int]gpu.Task{1: {Command: "python", PodUID: "pod-a"}})
	synctest.Test(t, func(t *testing.T) {
		m := w.start()
		a, b := usedBy(newClaim("a", h100+"-mig-1g-10gb-0"), "pod-a"), usedBy(newClaim("b", h100+"-mig-1g-10gb-1"), "pod-b")
		must(t, errOf(m.Prepare(once(), a)))
		must(t, w.sim.AddProcess(0, nvmlsim.Process{PID: 1, Device: w.uuids(0)[0]}))
		if _, err := m.Prepare(once(), b); err != nil {
			t.Errorf("next to a MIG device in use: %v", err)
		}
		if err := m.Unprepare(t.Context(), b.UID); err != nil {
			t.Errorf("unprepare next to a MIG device in use: %v", err)
		}
		require.Error(t, "unprepare a MIG device in use", m.Unprepare(t.Context(), a.UID), gpu.ErrInUse, "process 1 still computes on it")
		require.Same(t, "cuts", "0 on: 1g.10gb@0\n", w.cuts())
		must(t, w.sim.RemoveProcess(1))
		if err := m.Unprepare(t.Context(), a.UID); err != nil {
			t.Error(err)
		}
	})
}

func TestAMIGDeviceOfAnAdministratorIsNotHandedOutWhileItIsInUse(t *testing.T) {
	for name, c := range map[string]struct {
		on      int
		refused bool
	}{"on it": {0, true}, "on another one of the GPU": {1, false}} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			w.static = true
			w.administrator("makes", 0, "1g.10gb", 0)
			w.administrator("makes", 0, "1g.10gb", 1)
			w.scan()
			w.occupied(map[int]gpu.Task{1: {Command: "python"}})
			must(t, w.sim.AddProcess(0, nvmlsim.Process{PID: 1, Device: w.uuids(0)[c.on]}))
			m := w.start()
			_, err := m.Prepare(once(), newClaim("c", h100+"-mig-1g-10gb-0"))
			if errors.Is(err, gpu.ErrInUse) != c.refused || err != nil && !c.refused {
				t.Errorf("got %v, want it refused: %t", err, c.refused)
			}
		})
	}
}

// A GPU that hangs delays only its own claim.
func TestClaimsAreRecoveredWhileAGPUHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t, dir, 8)
		m := w.start()
		var want []types.UID
		for bus := range 8 {
			c := pieces(fmt.Sprint(bus), piece{device: fmt.Sprintf("gpu-%02x-00", bus), memory: "10Gi"})
			must(t, errOf(m.Prepare(t.Context(), c)))
			if bus != 0 { // of which the claim comes first
				want = append(want, c.UID)
			}
		}
		w.options = func(o *claim.Options) { o.MPS = hungDaemon{w.supervisor, "gpu-00-00"} }
		m = w.start()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // as the agent does
		defer cancel()
		report, err := m.Recover(ctx)
		require.Error(t, "error", err, gpu.ErrTimeout)
		require.Same(t, "report", claim.Report{Verified: want}, report)
		// The context of reconciliation has no deadline.
		require.Error(t, "without a deadline", errOf(m.Recover(t.Context())), gpu.ErrTimeout)
	})
}

// hungDaemon is a supervisor that does not answer for one daemon. It does not answer
// a caller whose context has ended either.
type hungDaemon struct {
	*supervisor
	name string
}

func (h hungDaemon) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	if d.Name == h.name {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return gpu.MPSDirs{}, fmt.Errorf("%w: %w", gpu.ErrTimeout, ctx.Err())
	}
	return h.supervisor.EnsureMPS(ctx, d)
}

func TestForeignProcessesOnHeldDevices(t *testing.T) {
	const part = "gpu-00-00"
	process := []claim.ForeignProcess{{Device: kindtest.Name(part), Claims: []types.UID{"uid-a", "uid-b"}, PID: 4711}}
	seen := []kind.Name{kindtest.Name(part)}
	for name, c := range map[string]struct {
		runs func(*occupants)
		// unread is a claim that could not be compared with the API server.
		unread types.UID
		want   []claim.ForeignProcess
		// unknown is set if there may be foreign processes that are not found.
		unknown bool
		// blind is set if the agent does not see the processes of pods.
		blind bool
	}{
		"an agent without the host's processes": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-gone")
			o.ends(4711)
		}, unknown: true, blind: true},
		"a process of a claim's pod":       {runs: func(o *occupants) { o.runs(0, 4711, "pod-a") }},
		"a process of the neighbour's pod": {runs: func(o *occupants) { o.runs(0, 4711, "pod-b") }},
		"a process of a pod of a claim's PodGroup": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-group")
			o.consumers["uid-b"] = []types.UID{"pod-group"}
		}},
		"a process of another pod":           {runs: func(o *occupants) { o.runs(0, 4711, "pod-gone") }, want: process},
		"a program of the host":              {runs: func(o *occupants) { o.runs(0, 4711, "") }},
		"a pod that monitors all GPUs":       {runs: func(o *occupants) { o.runs(0, 4711, "pod-m") }},
		"another pod on a GPU without claim": {runs: func(o *occupants) { o.runs(1, 4711, "pod-gone") }},
		"a process of another pod that has ended": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-gone")
			o.ends(4711)
		}},
		"another pod, which may be of a claim that could not be read": {
			runs: func(o *occupants) { o.runs(0, 4711, "pod-gone") }, unread: "uid-b", unknown: true,
		},
		"no process, and a claim that could not be read": {runs: func(*occupants) {}, unread: "uid-b"},
		"another pod, and containers that cannot be read": {
			runs: func(o *occupants) {
				o.runs(0, 4711, "pod-gone")
				o.consumersErr = errors.New("no mounts")
			}, unknown: true,
		},
		"a GPU that does not answer": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-gone")
			o.errs[gpu.PCIAddress{}] = gpu.ErrTimeout
		}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			o := w.occupied()
			if !c.blind {
				o.living = map[string]int{}
			}
			m := w.start()
			for _, holder := range []*resourceapi.ResourceClaim{
				usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a"), usedBy(pieces("b", piece{device: part, memory: "10Gi"}), "pod-b"), usedBy(monitor("m"), "pod-m"),
			} {
				must(t, errOf(m.Prepare(once(), holder)))
			}
			c.runs(o)
			held, err := m.Held(t.Context())
			must(t, err)
			var compared []claim.Claim
			for _, h := range held {
				if h.UID != c.unread {
					compared = append(compared, h)
				}
			}
			ctx, log := logged(t.Context())
			got, checked, err := m.ForeignProcesses(ctx, compared)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v, foreign processes (-want +got):\n%s", err, diff)
			}
			want := seen
			if c.unknown {
				want = nil
			}
			require.Same(t, "checked", want, checked)
			if named := strings.Contains(log.String(), "pod-gone"); named != (len(c.want) > 0) {
				t.Errorf("the log names the pod: %t\n%s", named, log)
			}
		})
	}
}
