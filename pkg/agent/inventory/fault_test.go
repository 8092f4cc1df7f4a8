// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
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

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// computer is a node on which one inventory runs after the other.
type computer struct {
	t    *testing.T
	hw   *hardware
	dir  string
	boot string
	word string // the node's annotation
	now  *rig
	full atomic.Bool // the disk

	// writes counts the files that were written.
	writes atomic.Int32

	mu      sync.Mutex
	load    string
	loadErr error
}

func newComputer(t *testing.T, node gpu.Node) *computer {
	return &computer{t: t, hw: &hardware{node: node}, dir: t.TempDir(), boot: "boot-1", load: "1"}
}

// start starts an inventory; the one before it has ended.
func (m *computer) start() *rig {
	m.t.Helper()
	faults, err := store.Open(m.dir, full{is: &m.full, writes: &m.writes})
	must(m.t, err)
	m.now = startWith(m.t, m.hw, func(o *inventory.Options) {
		o.Faults, o.BootID = faults, m.boot
		o.DriverLoad = func() (string, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.loadErr != nil {
				return "", m.loadErr
			}
			return m.load, nil
		}
	})
	m.annotate(m.word)
	return m.now
}

// date changes the time of all reports in the records.
func (m *computer) date(to time.Time) {
	m.t.Helper()
	faults, err := store.Open(m.dir, store.Unsynced{})
	must(m.t, err)
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
		must(m.t, err)
	}
}

// loaded sets the load of the driver, or the error of reading it.
func (m *computer) loaded(load string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.load, m.loadErr = load, err
}

// annotate sets the node's annotation.
func (m *computer) annotate(word string) {
	m.word = word
	m.now.SetRepaired(word)
	synctest.Wait()
}

// ask makes the driver ask for a recovery action of the i-th GPU.
func (m *computer) ask(i int, action gpu.RecoveryAction) {
	m.hw.change(func(h *hardware) { h.node.GPUs[i].Recovery = action })
}

func xid(i int, number uint64) gpu.Event {
	return gpu.Event{Kind: gpu.EventXID, UUID: fmt.Sprintf("GPU-%d", i), XID: number}
}

func TestAFaultOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(3))
		r := m.start()
		r.send(xid(1, 119))
		r.wantTaints("gpu-02-00 xid-119")
		r.stop()

		r = m.start()
		r.wantTaints("gpu-02-00 xid-119")
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
				m := newComputer(t, gpus(1))
				r := m.start()
				r.send(xid(0, 119))
				m.hw.change(fail)
				r.RequestScan()
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
		r.RequestScan()
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
		before, after func(m *computer, r *rig)
	}{
		"the driver asks for a reset, and then for nothing": {
			before: func(m *computer, _ *rig) { m.ask(0, gpu.RecoveryGPUReset) },
			after:  func(m *computer, _ *rig) { m.ask(0, gpu.RecoveryNone) },
		},
		"the GPU is lost and answers again": {
			before: func(m *computer, _ *rig) { m.hw.silence(0, gpu.ErrLost) },
			after:  func(m *computer, _ *rig) { m.hw.change(func(h *hardware) { h.node = gpus(1) }) },
		},
		"the driver no longer lists the GPU, and lists it again": {
			before: func(m *computer, _ *rig) { m.hw.change(func(h *hardware) { h.node.GPUs = nil }) },
			after:  func(m *computer, _ *rig) { m.hw.change(func(h *hardware) { h.node = gpus(1) }) },
		},
		"the driver is loaded anew": {
			after: func(m *computer, r *rig) { m.loaded("2", nil); r.RequestScan() },
		},
		"the driver is another release": {
			after: func(m *computer, r *rig) {
				m.hw.change(func(h *hardware) { h.node.DriverVersion = "580.65.06" })
				r.RequestScan()
			},
		},
		"another GPU is in its place": {
			after: func(m *computer, r *rig) {
				m.hw.change(func(h *hardware) { h.node.GPUs[0].UUID = "GPU-other" })
				r.RequestScan()
			},
		},
		"an administrator says so": {
			after: func(m *computer, _ *rig) { m.annotate("gpu-01-00@" + time.Now().UTC().Format(time.RFC3339)) },
		},
		"an administrator says so of all GPUs": {
			after: func(m *computer, _ *rig) { m.annotate("all@" + time.Now().UTC().Format(time.RFC3339)) },
		},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %v", name, restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newComputer(t, gpus(1))
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
				})
			})
		}
	}
}

// The clock of the test goes forward only, so the record is dated instead. A clock that was behind dates a fault before
// an earlier declaration, which does not end it; one that was ahead, after all later ones.
func TestADeclarationEndsAFaultThatAnotherClockHasDated(t *testing.T) {
	for years, word := range map[int]string{-10: "gpu-01-00@", 10: "all@"} {
		synctest.Test(t, func(t *testing.T) {
			m := newComputer(t, gpus(1))
			m.word = word + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			r := m.start()
			r.send(xid(0, 119))
			r.stop()
			m.date(time.Now().AddDate(years, 0, 0))
			r = m.start()
			r.pass(time.Hour)
			r.wantTaints("gpu-01-00 xid-119")
			m.annotate(word + time.Now().UTC().Format(time.RFC3339))
			r.wantTaints("")
		})
	}
}

func TestWhatTheDriverAsksForIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(2))
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
		r.wantTaints("gpu-02-00 recovery-drain-and-reset")
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
		m := newComputer(t, gpus(1))
		m.ask(0, gpu.RecoveryNone)
		r := m.start()
		r.send(xid(0, 145))
		r.wantTaints("")
		m.ask(0, gpu.RecoveryGPUReset)
		r.pass(10 * time.Second)
		r.wantTaints("gpu-01-00 recovery-gpu-reset")
	})
}

// Each write of a fault is a file. A failing GPU can report hundreds of errors a second.
func TestABurstOfEventsIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(1))
		r := m.start()
		// The scan that follows adds the address of the GPU.
		r.send(xid(0, 119))
		written := m.writes.Load()
		for range 100 {
			r.send(xid(0, 119))
		}
		r.pass(9 * time.Second) // reports within ten seconds count as one
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

func TestAnXIDMarksAtOnceAndTheDriverTakesItBackAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(1))
		m.hw.node.DriverVersion = "570.86.15"
		m.ask(0, gpu.RecoveryNone)
		r := m.start()
		r.send(xid(0, 62))
		r.wantTaints("gpu-01-00 xid-62")
		r.pass(30 * time.Second)
		r.wantTaints("gpu-01-00 xid-62")
		r.pass(5 * time.Minute)
		r.wantTaints("")
	})
}

func TestSeveralCausesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(1))
		r := m.start()
		r.send(xid(0, 48))
		r.pass(time.Second)
		r.send(xid(0, 62))
		m.ask(0, gpu.RecoveryNodeReboot)
		r.pass(time.Minute)
		r.want("1 of 1 GPUs answer; GPU at 0000:01:00.0: XID 48: a double-bit ECC error in the memory of the GPU; XID 62: a micro-controller of the GPU has halted; the driver requests a restart of the node")
		r.wantTaints("gpu-01-00 xid-48")
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
				m := newComputer(t, gpus(1))
				r := m.start()
				r.send(xid(0, 119))
				m.annotate(tc.word)
				r.pass(2 * time.Minute)
				r.wantTaints("gpu-01-00 xid-119")
				if err := r.Conditions.Get().Repairs; err == nil || !strings.Contains(err.Error(), tc.state) {
					t.Errorf("repairs %v\nwant %q", err, tc.state)
				}
				m.annotate("")
				if err := r.Conditions.Get().Repairs; err != nil {
					t.Errorf("repairs %v of a node without the annotation", err)
				}
			})
		})
	}
}

func TestARecordThatIsDamagedLeavesItsGPUUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(2))
		r := m.start()
		r.send(xid(1, 119))
		r.stop()
		records, err := filepath.Glob(filepath.Join(m.dir, "*.record"))
		if err != nil || len(records) != 1 {
			t.Fatalf("records %v, %v", records, err)
		}
		must(t, os.WriteFile(records[0], []byte("rubbish"), 0o600))
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

func TestWhatChangesWithoutAnEventIsFoundByTheSlowScan(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*hardware)
		found  func(state.Snapshot) bool
	}{
		"a GPU is lost":                  {func(h *hardware) { h.node.GPUs = h.node.GPUs[:1] }, func(s state.Snapshot) bool { return s.Health()[1].Cause == "lost" }},
		"a MIG mode is switched on":      {func(h *hardware) { h.node.GPUs[1].MIG.Enabled = true }, func(s state.Snapshot) bool { return s.Node().GPUs[1].MIG.Enabled }},
		"a GPU gets into another clique": {func(h *hardware) { h.node.GPUs[1].Fabric = &gpu.Fabric{CliqueID: 8} }, func(s state.Snapshot) bool { return s.Node().GPUs[1].Fabric != nil }},
		"a recovery action is requested": {func(h *hardware) { h.node.GPUs[1].Recovery = gpu.RecoveryGPUReset }, func(s state.Snapshot) bool { return s.Health()[1].Cause == "recovery-gpu-reset" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, &hardware{node: gpus(2)})
				r.pass(time.Minute)
				r.hw.change(tc.change)
				r.pass(13 * time.Minute)
				if !tc.found(r.Snapshot()) {
					t.Errorf("not found: %s", r.Snapshot())
				}
			})
		})
	}
}

func TestAGPUThatHangsFromTheStartDelaysTheOthersByTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(8))
		r := m.start()
		r.send(xid(3, 119))
		r.stop()

		m.hw.hang(3)
		r = m.start()
		r.pass(2 * time.Second)
		r.want("7 of 7 GPUs answer; GPU at 0000:04:00.0: read GPU 3: timed out; GPU GPU-3 at 0000:04:00.0: XID 119: the GPU's system processor (GSP) does not answer")
		if _, err := r.GPU(t.Context(), address(4)); err != nil {
			t.Errorf("a claim on another GPU: %v", err)
		}
		_, err := r.GPU(t.Context(), address(3))
		require.Error(t, "a claim on the GPU that hangs", err, gpu.ErrTimeout)
		m.hw.hang()
		r.send(gpu.Event{Kind: gpu.EventAnswer})
		r.wantTaints("gpu-04-00 xid-119")
	})
}

func TestAFaultOfAGPUThatHangsIsPublishedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(2))
		r := m.start()
		r.pass(time.Minute)
		r.hw.change(func(h *hardware) { h.hangs = true })
		r.RequestScan()
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
		m := newComputer(t, gpus(1))
		r := m.start()
		r.send(xid(0, 119))
		r.pass(time.Minute)
		looks, before := r.looks(), r.Revisions()
		r.pass(time.Hour)
		if n := r.looks() - looks; n < 55 || n > 65 {
			t.Errorf("%d scans in an hour, want one a minute", n)
		}
		if now := r.Revisions(); now != before {
			t.Errorf("the state has changed although nothing has: %+v, before %+v", now, before)
		}
	})
}

func TestAGPUThatDoesNotTellItsAddressIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(2))
		r := m.start()
		r.send(xid(1, 119))
		m.hw.change(func(h *hardware) {
			h.node.GPUs = h.node.GPUs[:1]
			h.node.Unreadable = []gpu.Unreadable{{Index: 1, Err: gpu.ErrTimeout}}
		})
		r.RequestScan()
		r.pass(time.Minute)
		r.wantTaints("gpu-02-00 xid-119")
		_, err := r.GPU(t.Context(), address(1))
		require.Error(t, "the GPU", err, gpu.ErrTimeout)
		m.hw.change(func(h *hardware) { h.node = gpus(2) })
		r.pass(time.Hour)
		r.wantTaints("gpu-02-00 xid-119")
	})
}

func TestALoadOfTheDriverThatCannotBeReadEndsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newComputer(t, gpus(1))
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
		m := newComputer(t, gpus(1))
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
