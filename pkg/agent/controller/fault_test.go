// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// machine is a node on which one agent runs after the other.
type machine struct {
	t     *testing.T
	hw    *hardware
	dir   string
	boot  string
	word  string // the node's annotation
	words chan string
	full  atomic.Bool // the disk
	// writes counts the files that were written.
	writes atomic.Int32

	mu      sync.Mutex
	load    string
	loadErr error
}

func newMachine(t *testing.T, node gpu.Node) *machine {
	return &machine{t: t, hw: &hardware{node: node}, dir: t.TempDir(), boot: "boot-1", load: "1", words: make(chan string)}
}

// start starts an agent; the one before it has ended.
func (m *machine) start() *rig {
	m.t.Helper()
	faults, err := store.Open(m.dir, full{is: &m.full, writes: &m.writes})
	if err != nil {
		m.t.Fatal(err)
	}
	return startChanged(m.t, m.hw, func(o *parts) {
		o.Faults, o.BootID = faults, m.boot
		o.DriverLoad = func() (string, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.loadErr != nil {
				return "", m.loadErr
			}
			return m.load, nil
		}
		o.Node = func(ctx context.Context, on func(cluster.Node, error)) {
			on(cluster.Node{Annotations: map[string]string{v1alpha1.AnnotationRepaired: m.word}}, nil)
			for {
				select {
				case word := <-m.words:
					on(cluster.Node{Annotations: map[string]string{v1alpha1.AnnotationRepaired: word}}, nil)
				case <-ctx.Done():
					return
				}
			}
		}
	})
}

// date changes the time of all reports in the records.
func (m *machine) date(to time.Time) {
	m.t.Helper()
	faults, err := store.Open(m.dir, store.Unsynced{})
	if err != nil {
		m.t.Fatal(err)
	}
	keys, err := faults.Keys()
	if err != nil || len(keys) == 0 {
		m.t.Fatalf("records %v, %v", keys, err)
	}
	stamp := regexp.MustCompile(`("(?:first|last)"):"[^"]*"`)
	for _, key := range keys {
		payload, err := faults.Read(key)
		if err == nil {
			err = faults.Write(key, stamp.ReplaceAll(payload, []byte(`$1:"`+to.UTC().Format(time.RFC3339)+`"`)))
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// loaded sets the load of the driver, or the error of reading it.
func (m *machine) loaded(load string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load, m.loadErr = load, err
}

// annotate sets the node's annotation.
func (m *machine) annotate(word string) {
	m.word = word
	m.words <- word
	synctest.Wait()
}

// ask makes the driver ask for a recovery action of the i-th GPU.
func (m *machine) ask(i int, action gpu.RecoveryAction) {
	m.hw.change(func(h *hardware) { h.node.GPUs[i].Recovery = action })
}

func xid(i int, number uint64) gpu.Event {
	return gpu.Event{Kind: gpu.EventXID, UUID: fmt.Sprintf("GPU-%d", i), XID: number}
}

// taints are the unhealthy devices of a node with plain GPUs.
func (r *rig) taints() string {
	var tainted []string
	for _, line := range strings.Split(r.shown(), "\n") {
		name, value, found := strings.Cut(line, " (")
		if found {
			name, _, _ = strings.Cut(name, " ")
			tainted = append(tainted, name+" "+strings.TrimSuffix(value, ")"))
		}
	}
	return strings.Join(tainted, ", ")
}

func (r *rig) wantTaints(want string) {
	r.t.Helper()
	if got := r.taints(); got != want {
		r.t.Errorf("tainted %q, want %q; state: %s", got, want, r.State())
	}
}

func TestAFaultOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(3))
		r := m.start()
		r.send(xid(1, 119))
		r.wantTaints("gpu-02-00 xid-119")
		r.stop()

		r = m.start()
		r.wantTaints("gpu-02-00 xid-119")
		if r.times() != 1 {
			t.Errorf("published %d times, want the GPUs with the taint at once", r.times())
		}
		r.stop()

		// Every GPU was reset by the time that another boot begins.
		m.boot = "boot-2"
		r = m.start()
		r.wantTaints("")
		if records, err := filepath.Glob(filepath.Join(m.dir, "*.record")); err != nil || len(records) > 0 {
			t.Errorf("records of the boot before are left: %v, %v", records, err)
		}
	})
}

func TestAScanThatFailsEndsNoFault(t *testing.T) {
	unknown := errors.New(`read GPU 0: read its memory: NVML says "Unknown Error"`)
	for name, fail := range map[string]func(*hardware){
		"the node as a whole": func(h *hardware) { h.err = errors.New(`count the GPUs: NVML says "Unknown Error"`) },
		"the GPU is slow":     func(h *hardware) { h.hanging = map[int]bool{0: true} },
		"an unknown code of the GPU": func(h *hardware) {
			at := address(0)
			h.node = gpu.Node{DriverVersion: h.node.DriverVersion, Unreadable: []gpu.Unreadable{{Address: &at, Err: unknown}}}
		},
		"the driver is away for a moment": func(h *hardware) { h.err = gpu.ErrNotReady },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, gpus(1))
				r := m.start()
				r.send(xid(0, 119))
				m.hw.change(fail)
				r.Inventory.RequestScan()
				r.pass(3 * time.Second)
				r.wantTaints("gpu-01-00 xid-119")
				m.hw.change(func(h *hardware) { h.err, h.hanging, h.node = nil, nil, gpus(1) })
				r.pass(time.Hour)
				r.wantTaints("gpu-01-00 xid-119")
			})
		})
	}
}

func TestAScanThatFailsAsAWholeTaintsNoGPUUnlessItIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(2)})
		r.hw.change(func(h *hardware) { h.err = errors.New("count the GPUs: unknown error") })
		r.Inventory.RequestScan()
		synctest.Wait()
		r.wantTaints("")
		if _, err := r.GPU(t.Context(), address(0)); err != nil {
			t.Errorf("a GPU after one failed scan: %v", err)
		}
		r.pass(2 * time.Second)
		r.wantTaints("gpu-01-00 lost, gpu-02-00 lost")
		r.hw.change(func(h *hardware) { h.err = nil })
		r.pass(time.Minute)
		r.wantTaints("")
	})
}

func TestAFaultEndsByEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after func(m *machine, r *rig)
	}{
		"the driver asks for a reset, and then for nothing": {
			before: func(m *machine, _ *rig) { m.ask(0, gpu.RecoveryGPUReset) },
			after:  func(m *machine, _ *rig) { m.ask(0, gpu.RecoveryNone) },
		},
		"the GPU is lost and answers again": {
			before: func(m *machine, _ *rig) { m.hw.silence(0, gpu.ErrLost) },
			after:  func(m *machine, _ *rig) { m.hw.change(func(h *hardware) { h.node = gpus(1) }) },
		},
		"the driver no longer lists the GPU, and lists it again": {
			before: func(m *machine, _ *rig) { m.hw.change(func(h *hardware) { h.node.GPUs = nil }) },
			after:  func(m *machine, _ *rig) { m.hw.change(func(h *hardware) { h.node = gpus(1) }) },
		},
		"the driver is loaded anew": {
			after: func(m *machine, r *rig) { m.loaded("2", nil); r.Inventory.RequestScan() },
		},
		"the driver is another release": {
			after: func(m *machine, r *rig) {
				m.hw.change(func(h *hardware) { h.node.DriverVersion = "580.65.06" })
				r.Inventory.RequestScan()
			},
		},
		"another GPU is in its place": {
			after: func(m *machine, r *rig) {
				m.hw.change(func(h *hardware) { h.node.GPUs[0].UUID = "GPU-other" })
				r.Inventory.RequestScan()
			},
		},
		"an administrator says so": {
			after: func(m *machine, _ *rig) { m.annotate("gpu-01-00@" + time.Now().UTC().Format(time.RFC3339)) },
		},
		"an administrator says so of all GPUs": {
			after: func(m *machine, _ *rig) { m.annotate("all@" + time.Now().UTC().Format(time.RFC3339)) },
		},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %v", name, restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMachine(t, gpus(1))
					r := m.start()
					r.send(xid(0, 119))
					if tc.before != nil {
						tc.before(m, r)
					}
					r.pass(time.Hour)
					r.wantTaints("gpu-01-00 xid-119")
					if restarts {
						r.stop()
						r = m.start()
						r.pass(time.Second)
					}
					tc.after(m, r)
					r.pass(2 * time.Minute)
					r.wantTaints("")
					r.stop()
					r = m.start()
					r.wantTaints("")
					r.want("slice 0\ngpu-01-00", "Published: 1 of 1 devices healthy")
				})
			})
		}
	}
}

// The clock of the test goes forward only, so the record is dated instead.
func TestAFaultFromTheFutureEndsAsOneFromNow(t *testing.T) {
	word := func() string { return "gpu-01-00@" + time.Now().UTC().Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		xid  uint64
		ends func(m *machine, r *rig)
	}{
		"an administrator says so":                  {119, func(m *machine, r *rig) { r.pass(time.Minute); m.annotate(word()) }},
		"an administrator says so after a restart":  {119, func(m *machine, r *rig) { r.pass(time.Minute); r.stop(); m.word = word(); *r = *m.start() }},
		"the driver asks for nothing for a minute":  {62, func(*machine, *rig) {}},
		"it is reported again, and taken back then": {62, func(_ *machine, r *rig) { r.send(xid(0, 62)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, gpus(1))
				m.hw.node.DriverVersion = "570.86.15"
				m.ask(0, gpu.RecoveryNone)
				r := m.start()
				r.send(xid(0, tc.xid))
				r.stop()
				m.date(time.Now().AddDate(10, 0, 0))
				r = m.start()
				r.wantTaints(fmt.Sprintf("gpu-01-00 xid-%d", tc.xid))
				tc.ends(m, r)
				r.pass(3 * time.Minute)
				r.wantTaints("")
			})
		})
	}
}

func TestAWordOfBeforeEndsNoFaultFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		m.word = "all@" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		r := m.start()
		r.send(xid(0, 119))
		r.stop()
		m.date(time.Now().AddDate(10, 0, 0))
		r = m.start()
		r.pass(time.Hour)
		r.wantTaints("gpu-01-00 xid-119")
	})
}

func TestWhatTheDriverAsksForIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(2))
		m.ask(0, gpu.RecoveryNone)
		m.ask(1, gpu.RecoveryNone)
		r := m.start()
		m.ask(1, gpu.RecoveryDrainAndReset)
		r.send(xid(1, 154))
		r.wantTaints("gpu-02-00 recovery-drain-and-reset")
		g, err := r.GPU(t.Context(), address(1))
		want := "the driver requests the end of the programs on the GPU and its peers, and a reset; recreate the pod, so that it gets another GPU; " +
			"the administrator's remedy: move its pods (kubectl gpu drain NODE/gpu-02-00), then reset the GPU (nvidia-smi --gpu-reset --id 0000:02:00.0) or restart the node"
		if err != nil || g.Fault != want {
			t.Errorf("fault %q, %v\nwant %q", g.Fault, err, want)
		}
		if all, err := r.GPUs(t.Context()); err != nil || all[0].Fault != "" || all[1].Fault != want {
			t.Errorf("GPUs %+v, %v", all, err)
		}
		// No word takes back what the driver says.
		m.annotate("all@" + time.Now().UTC().Format(time.RFC3339))
		r.pass(2 * time.Minute)
		r.wantTaints("gpu-02-00 recovery-drain-and-reset")
		m.ask(1, gpu.RecoveryNone)
		r.pass(2 * time.Minute)
		r.wantTaints("")
	})
}

// The recovery action follows its XID after a moment, perhaps without an event.
func TestARecoveryActionThatFollowsAnXIDIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		m.ask(0, gpu.RecoveryNone)
		r := m.start()
		r.send(xid(0, 145))
		r.wantTaints("")
		m.ask(0, gpu.RecoveryGPUReset)
		r.pass(10 * time.Second)
		r.wantTaints("gpu-01-00 recovery-gpu-reset")
	})
}

// A minute later would be too late for the report: the action names the repair.
func TestARecoveryActionThatFollowsAFatalXIDIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		m.ask(0, gpu.RecoveryNone)
		r := m.start()
		r.send(xid(0, 62))
		r.wantTaints("gpu-01-00 xid-62")
		m.ask(0, gpu.RecoveryNodeReboot)
		r.pass(10 * time.Second)
		if d := r.Devices(); !strings.Contains(d[0].Message, "a restart of the node") {
			t.Errorf("device %+v, want the recovery action", d[0])
		}
	})
}

// Each write of a fault is a file. A failing GPU can report hundreds of errors a second.
func TestABurstOfEventsIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		r := m.start()
		// The scan that follows adds the address of the GPU.
		r.send(xid(0, 119))
		written := m.writes.Load()
		for range 100 {
			r.send(xid(0, 119))
		}
		r.pass(repeated - time.Second)
		if n := m.writes.Load(); n != written || n == 0 {
			t.Errorf("written %d times after the burst, and %d times after its first event", n, written)
		}
		r.pass(time.Second)
		r.send(xid(0, 119))
		if n := m.writes.Load(); n != written+1 {
			t.Errorf("a later report is written %d times, want once", n-written)
		}
		r.wantTaints("gpu-01-00 xid-119")
	})
}

// repeated is how long reports of the same fault count as one.
const repeated = 10 * time.Second

func TestAnXIDMarksAtOnceAndTheDriverTakesItBackAfterAMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		version  string
		xid      uint64
		recovery gpu.RecoveryAction
		after    string
	}{
		"the action covers the XID":               {"570.86.15", 62, gpu.RecoveryNone, ""},
		"the action does not cover it":            {"570.86.15", 119, gpu.RecoveryNone, "gpu-01-00 xid-119"},
		"the action of a later release covers it": {"570.86.15", 143, gpu.RecoveryNone, "gpu-01-00 xid-143"},
		"the driver reports no action":            {"550.54.15", 62, "", "gpu-01-00 xid-62"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, gpus(1))
				m.hw.node.DriverVersion = tc.version
				m.ask(0, tc.recovery)
				r := m.start()
				r.send(xid(0, tc.xid))
				marked := fmt.Sprintf("gpu-01-00 xid-%d", tc.xid)
				r.wantTaints(marked)
				r.pass(30 * time.Second)
				r.wantTaints(marked)
				r.pass(5 * time.Minute)
				r.wantTaints(tc.after)
			})
		})
	}
}

func TestSeveralCausesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		r := m.start()
		r.send(xid(0, 48))
		r.pass(time.Second)
		r.send(xid(0, 62))
		m.ask(0, gpu.RecoveryNodeReboot)
		r.pass(time.Minute)
		all := "XID 48: a double-bit ECC error in the memory of the GPU; XID 62: a micro-controller of the GPU has halted; the driver requests a restart of the node"
		r.want("slice 0\ngpu-01-00 (xid-48)", "Published: 0 of 1 devices healthy; GPU at 0000:01:00.0: "+all)
		if d := r.Devices(); d[0].Reason != "xid-48" || d[0].Message != all {
			t.Errorf("device %+v", d[0])
		}
	})
}

func TestAWordThatCannotBeFollowedIsReported(t *testing.T) {
	for name, tc := range map[string]struct{ word, state string }{
		"no time":      {"gpu-01-00", `the node's annotation gpu.nvidia.com/repaired is not followed: invalid entry "gpu-01-00": want DEVICE@TIME`},
		"a typo":       {"all@2026-13-01T00:00:00Z", `is not followed: invalid entry "all@2026-13-01T00:00:00Z"`},
		"another node": {"gpu-0f-00@2000-01-01T00:00:00Z", "gpu-0f-00@2000-01-01T00:00:00Z names no GPU of this node (gpu-01-00)"},
		"the future":   {"gpu-01-00@2062-01-01T00:00:00Z", "gpu-01-00@2062-01-01T00:00:00Z is in the future"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, gpus(1))
				r := m.start()
				r.send(xid(0, 119))
				m.annotate(tc.word)
				r.pass(2 * time.Minute)
				r.wantTaints("gpu-01-00 xid-119")
				if state := r.State().String(); !strings.Contains(state, tc.state) {
					t.Errorf("state %q\nwant it to contain %q", state, tc.state)
				}
				m.annotate("")
				if state := r.State().String(); strings.Contains(state, "annotation") {
					t.Errorf("state %q of a node without the annotation", state)
				}
			})
		})
	}
}

func TestAWordEndsNothingThatIsReportedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(2))
		r := m.start()
		r.send(xid(0, 119))
		r.pass(time.Minute)
		m.annotate("GPU-0@" + time.Now().UTC().Format(time.RFC3339))
		r.wantTaints("")
		r.pass(time.Hour)
		r.send(xid(0, 119))
		r.pass(time.Hour)
		r.wantTaints("gpu-01-00 xid-119")
		r.stop()
		r = m.start()
		r.pass(time.Hour)
		r.wantTaints("gpu-01-00 xid-119")
	})
}

func TestARecordThatIsDamagedLeavesItsGPUUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(2))
		r := m.start()
		r.send(xid(1, 119))
		r.stop()
		records, err := filepath.Glob(filepath.Join(m.dir, "*.record"))
		if err != nil || len(records) != 1 {
			t.Fatalf("records %v, %v", records, err)
		}
		if err := os.WriteFile(records[0], []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		r = m.start()
		r.wantTaints("gpu-02-00 record-damaged")
		if aside, err := filepath.Glob(filepath.Join(m.dir, "quarantine", "*.record")); err != nil || len(aside) != 1 {
			t.Errorf("in quarantine %v, %v", aside, err)
		}
		r.pass(time.Second)
		m.annotate("gpu-02-00@" + time.Now().UTC().Format(time.RFC3339))
		r.wantTaints("")
	})
}

func TestAGPUJoinsItsFabricLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := gpus(2)
		for i := range node.GPUs {
			node.GPUs[i].FabricState = gpu.FabricInProgress
		}
		r := start(t, &hardware{node: node})
		r.wantTaints("gpu-01-00 fabric-not-ready, gpu-02-00 fabric-not-ready")
		g, err := r.GPU(t.Context(), address(0))
		if err != nil || !strings.Contains(g.Fault, "(in-progress)") || !strings.Contains(g.Fault, "802") || !strings.Contains(g.Fault, "nvidia-fabricmanager") {
			t.Errorf("fault %q, %v; want the state, the error of CUDA and the remedy", g.Fault, err)
		}
		r.pass(30 * time.Second)
		r.hw.change(func(h *hardware) {
			h.node = gpus(2)
			for i := range h.node.GPUs {
				h.node.GPUs[i].FabricState = gpu.FabricCompleted
				h.node.GPUs[i].Fabric = &gpu.Fabric{ClusterUUID: "3a1b", CliqueID: 7}
			}
		})
		r.pass(time.Minute)
		r.wantTaints("")
		if g, err := r.GPU(t.Context(), address(0)); err != nil || g.Fault != "" {
			t.Errorf("fault %q, %v", g.Fault, err)
		}
		looks := r.looks()
		r.pass(time.Hour)
		if r.looks() > looks+6 {
			t.Errorf("%d scans in an hour after the fabric is ready", r.looks()-looks)
		}
	})
}

func TestAFabricThatFailedIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := gpus(1)
		node.GPUs[0].FabricState = gpu.FabricFailed
		r := start(t, &hardware{node: node})
		r.want("slice 0\ngpu-01-00 (fabric-failed)", "Published: 0 of 1 devices healthy; GPU at 0000:01:00.0: the GPU could not join its NVSwitch fabric")
	})
}

func TestWhatChangesWithoutAnEventIsFoundByTheSlowScan(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*hardware)
		want   string
	}{
		"a GPU is lost":                  {func(h *hardware) { h.node.GPUs = h.node.GPUs[:1] }, "gpu-02-00 (lost)"},
		"a MIG mode is switched on":      {func(h *hardware) { h.node.GPUs[1].MIG = gpu.MIG{Capable: true, Enabled: true} }, "gpu-02-00 – 01-00 (enabled)"},
		"a GPU gets into another clique": {func(h *hardware) { h.node.GPUs[1].Fabric = &gpu.Fabric{ClusterUUID: "3a1b", CliqueID: 8} }, "gpu-02-00 clique 8"},
		"a recovery action is requested": {func(h *hardware) { h.node.GPUs[1].Recovery = gpu.RecoveryGPUReset }, "gpu-02-00 – 01-00 (recovery-gpu-reset)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := gpus(2)
				for i := range node.GPUs {
					node.GPUs[i].Fabric = &gpu.Fabric{ClusterUUID: "3a1b", CliqueID: 7}
				}
				r := start(t, &hardware{node: node})
				r.pass(time.Minute)
				r.hw.change(tc.change)
				r.pass(13 * time.Minute)
				shown := r.shown()
				for _, device := range r.published[len(r.published)-1].Pools["node-1"].Slices[0].Devices {
					for name, value := range device.Attributes {
						if name == "fabricCliqueID" {
							shown += fmt.Sprintf("\n%s clique %d", device.Name, *value.IntValue)
						}
					}
				}
				if !strings.Contains(shown, tc.want) {
					t.Errorf("published:\n%s\nwant %s", shown, tc.want)
				}
				if r.times() != 2 {
					t.Errorf("published %d times", r.times())
				}
			})
		})
	}
}

func TestAGPUThatHangsFromTheStartDelaysTheOthersByTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(8))
		r := m.start()
		r.send(xid(3, 119))
		r.stop()

		m.hw.hang(3)
		r = m.start()
		r.pass(2 * time.Second)
		if got := strings.Count(r.shown(), "gpu-"); got != 7 {
			t.Errorf("%d GPUs are published after two seconds:\n%s", got, r.shown())
		}
		state := "Published: 7 of 7 devices healthy; GPU at 0000:04:00.0: read GPU 3: timed out; GPU GPU-3 at 0000:04:00.0: XID 119: the GPU's system processor (GSP) does not answer"
		if got := r.State().String(); got != state {
			t.Errorf("state %s\nwant  %s", got, state)
		}
		if _, err := r.GPU(t.Context(), address(4)); err != nil {
			t.Errorf("a claim on another GPU: %v", err)
		}
		if _, err := r.GPU(t.Context(), address(3)); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("a claim on the GPU that hangs: %v, want ErrTimeout", err)
		}
		m.hw.hang()
		r.send(gpu.Event{Kind: gpu.EventAnswer})
		r.wantTaints("gpu-04-00 xid-119")
	})
}

func TestAFaultOfAGPUThatHangsIsPublishedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(2))
		r := m.start()
		r.pass(time.Minute)
		r.hw.change(func(h *hardware) { h.hangs = true })
		r.Inventory.RequestScan()
		synctest.Wait()
		// No time passes: the scan is under way and hangs.
		r.send(xid(1, 119))
		r.wantTaints("gpu-02-00 xid-119")
		if records, err := filepath.Glob(filepath.Join(m.dir, "GPU-1-*.record")); err != nil || len(records) != 1 {
			t.Errorf("records %v, %v: an agent that is killed now forgets the fault", records, err)
		}
		g, err := r.GPU(t.Context(), address(1))
		for _, want := range []string{"XID 119: the GPU's system processor (GSP) does not answer; recreate the pod", "nvidia-smi --gpu-reset --id 0000:02:00.0"} {
			if err != nil || !strings.Contains(g.Fault, want) {
				t.Errorf("fault %q, %v; want %q in it", g.Fault, err, want)
			}
		}
	})
}

func TestWhileThereIsAFaultTheGPUIsScannedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		r := m.start()
		r.send(xid(0, 119))
		r.pass(time.Minute)
		looks, times := r.looks(), r.times()
		r.pass(time.Hour)
		if n := r.looks() - looks; n < 55 || n > 65 {
			t.Errorf("%d scans in an hour, want one a minute", n)
		}
		if r.times() != times {
			t.Errorf("published %d times although nothing changed", r.times()-times)
		}
	})
}

func TestAnAdministratorsMIGModeIsHisAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: halves(1)}
		hw.node.GPUs[0].MIG.Enabled = true
		hw.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0)}
		held := map[kind.Name]bool{kindtest.Name("gpu-01-00-mig-3g-40gb-0"): false}
		c := startIn(t, hw, held, map[string]string{"gpu.nvidia.com/offer": "share.mig"})
		// A claim has a partition and has not switched the mode on.
		c.wantNames("gpu-01-00 (enabled), gpu-01-00-mig-3g-40gb-0, gpu-01-00-mig-3g-40gb-4")
		g, err := c.GPU(t.Context(), address(0))
		if err != nil || !g.MIG.Enabled {
			t.Errorf("MIG %+v, %v", g.MIG, err)
		}
		c.switchMode(0)
		c.Inventory.RequestScan()
		c.pass(time.Second)
		c.wantNames(cutInHalves)
		// A disk that fails for a moment does not make the mode an administrator's.
		c.mu.Lock()
		c.err = errors.New("disk")
		c.mu.Unlock()
		c.Inventory.RequestScan()
		c.pass(time.Second)
		c.wantNames(cutInHalves)
		c.mu.Lock()
		c.err = nil
		c.mu.Unlock()
		// A partition that no claim holds keeps the GPU in the mode.
		hw.change(func(h *hardware) { h.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0), half(4)} })
		c.Inventory.RequestScan()
		c.pass(time.Second)
		c.wantNames("gpu-01-00 (enabled), gpu-01-00-mig-3g-40gb-0")
	})
}

func TestAGPUThatDoesNotTellItsAddressIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(2))
		r := m.start()
		r.send(xid(1, 119))
		m.hw.change(func(h *hardware) {
			h.node.GPUs = h.node.GPUs[:1]
			h.node.Unreadable = []gpu.Unreadable{{Index: 1, Err: gpu.ErrTimeout}}
		})
		r.Inventory.RequestScan()
		r.pass(time.Minute)
		r.wantTaints("gpu-02-00 xid-119")
		if _, err := r.GPU(t.Context(), address(1)); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("the GPU: %v, want ErrTimeout", err)
		}
		m.hw.change(func(h *hardware) { h.node = gpus(2) })
		r.pass(time.Hour)
		r.wantTaints("gpu-02-00 xid-119")
	})
}

func TestALoadOfTheDriverThatCannotBeReadEndsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		r := m.start()
		r.send(xid(0, 119))
		m.loaded("1", errors.New("permission denied"))
		r.pass(time.Hour)
		r.wantTaints("gpu-01-00 xid-119")
		m.loaded("1", nil)
		r.pass(time.Hour)
		r.wantTaints("gpu-01-00 xid-119")
	})
}

// full is a disk that is full for a while.
type full struct {
	store.Unsynced
	is     *atomic.Bool
	writes *atomic.Int32
}

func (f full) WriteNew(path string, data []byte) error {
	if f.is.Load() {
		return errors.New("no space left on device")
	}
	f.writes.Add(1)
	return f.Unsynced.WriteNew(path, data)
}

func TestAFaultThatCannotBeRecordedIsRecordedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, gpus(1))
		m.full.Store(true)
		r := m.start()
		r.send(xid(0, 119))
		r.wantTaints("gpu-01-00 xid-119")
		r.pass(2 * time.Minute)
		m.full.Store(false)
		r.pass(2 * time.Minute)
		r.stop()
		m.start().wantTaints("gpu-01-00 xid-119")
	})
}
