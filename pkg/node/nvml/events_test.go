// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// watched is a running Watch.
type watched struct {
	events chan gpu.Event
	done   chan error
	stop   context.CancelFunc
}

func watch(t *testing.T, l *nvml.Library) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := watched{events: make(chan gpu.Event, 100), done: make(chan error, 1), stop: cancel}
	go func() { w.done <- l.Watch(ctx, func(e gpu.Event) { w.events <- e }) }()
	t.Cleanup(cancel)
	return w
}

// arrives makes something happen until the Watch, which starts meanwhile,
// reports the event.
func (w watched) arrives(t *testing.T, want gpu.Event, happen func() error) {
	t.Helper()
	eventually(t, "an event arrives", func() bool {
		must(t, happen())
		for {
			select {
			case got := <-w.events:
				if got == want {
					return true
				}
				t.Logf("meanwhile: %+v", got)
			default:
				return false
			}
		}
	})
}

func (w watched) ends(t *testing.T) {
	t.Helper()
	w.stop()
	if err := <-w.done; err != nil {
		t.Errorf("Watch ends with %v, want nil", err)
	}
}

func TestWatchReportsWhatHappens(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(*nvmlsim.Sim) error
		want   gpu.Event
	}{
		{"an XID", func(s *nvmlsim.Sim) error { return s.ReportXID(2, 94) }, gpu.Event{Kind: gpu.EventXID, XID: 94}},
		{"a double-bit error", func(s *nvmlsim.Sim) error { return s.FailECC(2) }, gpu.Event{Kind: gpu.EventECC}},
		{"a link that goes down", func(s *nvmlsim.Sim) error {
			if err := s.ClearFaults(); err != nil {
				return err
			}
			return s.LinkDown(2, 5)
		}, gpu.Event{Kind: gpu.EventLink, XID: 74}},
		{"a GPU that is lost", func(s *nvmlsim.Sim) error { return s.LoseGPU(2) }, gpu.Event{Kind: gpu.EventLost, XID: 79}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sim := simulate(t, "dgx1-v100")
			l := nvml.New(sim.NVML())
			c.want.UUID = snapshot(t, l).GPUs[2].UUID
			w := watch(t, l)
			// Registered once any event of it has come.
			w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 13, UUID: c.want.UUID}, func() error { return sim.ReportXID(2, 13) })
			w.arrives(t, c.want, func() error { return c.happen(sim) })
			w.ends(t)
		})
	}
}

// Some drivers deliver the events of all GPUs to each event set.
func TestAnEventIsOfTheGPUThatItNames(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	must(t, sim.DeliverToAllSets(true))
	l := nvml.New(sim.NVML())
	gpus := snapshot(t, l).GPUs
	w := watch(t, l)
	for i, g := range gpus {
		w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 13, UUID: g.UUID}, func() error { return sim.ReportXID(i, 13) })
	}
	must(t, sim.ReportXID(2, 94))
	must(t, sim.ReportXID(3, 95))
	for range 2 * len(gpus) {
		e := <-w.events
		for e.XID == 13 { // reported again while the watch started
			e = <-w.events
		}
		want := gpus[2].UUID
		if e.XID == 95 {
			want = gpus[3].UUID
		}
		if e.UUID != want {
			t.Errorf("XID %d of %s, want %s", e.XID, e.UUID, want)
		}
	}
	w.ends(t)
}

func TestAnEventOfAGPUThatIsNotWatchedBlamesNoOther(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	must(t, sim.DeliverToAllSets(true))
	l := nvml.New(sim.NVML())
	gpus := snapshot(t, l).GPUs
	unwatched := 3
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceGetHandleByIndex", GPU: &unwatched, Return: gonvml.ERROR_UNKNOWN}))
	w := watch(t, l)
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 13, UUID: gpus[2].UUID}, func() error { return sim.ReportXID(2, 13) })
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 48}, func() error { return sim.ReportXID(unwatched, 48) })
	w.ends(t)
}

func TestWatchReportsAnotherRecoveryAction(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	uuid := snapshot(t, l).GPUs[2].UUID
	w := watch(t, l)
	w.arrives(t, gpu.Event{Kind: gpu.EventRecovery, UUID: uuid}, func() error {
		return errors.Join(sim.SetRecovery(2, nvmlsim.RecoveryNone), sim.SetRecovery(2, nvmlsim.RecoveryGPUReset))
	})
	w.ends(t)
}

func TestWatchFollowsTheGPUsThatCome(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "t4")
	must(t, sim.UnloadDriver())
	l := nvml.New(sim.NVML())
	if _, err := l.Snapshot(t.Context()); !errors.Is(err, gpu.ErrNotReady) {
		t.Fatal(err)
	}
	w := watch(t, l)
	must(t, sim.ClearFaults())
	must(t, sim.LoseGPU(1))
	node := snapshot(t, l)
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 31, UUID: node.GPUs[0].UUID}, func() error { return sim.ReportXID(0, 31) })

	must(t, sim.ClearFaults())
	uuid := snapshot(t, l).GPUs[1].UUID
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 31, UUID: uuid}, func() error { return sim.ReportXID(1, 31) })
	w.ends(t)
}

func TestWatchReportsAGPUThatNVMLCallsLost(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "EventSetWait", Return: gonvml.ERROR_GPU_IS_LOST, Count: 1}))
	w := watch(t, l)
	require.Same(t, "event", gpu.Event{Kind: gpu.EventLost}, <-w.events)
	// It goes on.
	uuid := snapshot(t, l).GPUs[1].UUID
	w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 31, UUID: uuid}, func() error { return sim.ReportXID(1, 31) })
	w.ends(t)
}

func TestWatchFailsIfNVMLRefusesToWait(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "EventSetWait", Return: gonvml.ERROR_UNKNOWN}))
	if err := <-watch(t, l).done; err == nil {
		t.Error("Watch ends without an error")
	}
}

func TestWatchOfADriverThatHangsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "EventSetCreate", Hang: nvmlsim.Duration(time.Hour), Count: 1}))
	w := watch(t, l)
	eventually(t, "the fault strikes", func() bool {
		state, err := sim.State()
		must(t, err)
		return len(state.CallFaults) == 0
	})
	w.stop()
	require.Error(t, "Watch", <-w.done, gpu.ErrTimeout)
	require.Error(t, "Close below a Watch that hangs", l.Close(), gpu.ErrInUse)
	must(t, sim.ClearFaults())
	eventually(t, "the Library closes", func() bool { return l.Close() == nil })
}

func TestEventsOfOtherGPUsArriveWhileOneHangs(t *testing.T) {
	fault := func(method string) func(*testing.T, *nvmlsim.Sim) {
		return func(t *testing.T, sim *nvmlsim.Sim) { hang(t, sim, method, 3) }
	}
	for _, c := range []struct {
		name  string
		hangs func(*testing.T, *nvmlsim.Sim)
	}{
		{"in its handle", fault("DeviceGetHandleByIndex")},
		{"in the events it supports", fault("DeviceGetSupportedEventTypes")},
		{"in registration", fault("DeviceRegisterEvents")},
		{"in waiting", fault("EventSetWait")},
		{"in every call", func(t *testing.T, sim *nvmlsim.Sim) { must(t, sim.HangGPU(3)) }},
	} {
		t.Run(c.name+" from the start", func(t *testing.T) {
			t.Parallel()
			sim := simulate(t, "dgx1-v100")
			l := nvml.New(sim.NVML())
			uuids := snapshot(t, l).GPUs
			c.hangs(t, sim)
			w := watch(t, l)
			w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 31, UUID: uuids[2].UUID}, func() error { return sim.ReportXID(2, 31) })
			// It is watched once it goes on.
			must(t, sim.ClearFaults())
			w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 32, UUID: uuids[3].UUID}, func() error { return sim.ReportXID(3, 32) })
			w.ends(t)
		})
		t.Run(c.name+" later", func(t *testing.T) {
			t.Parallel()
			sim := simulate(t, "dgx1-v100")
			l := nvml.New(sim.NVML())
			uuids := snapshot(t, l).GPUs
			w := watch(t, l)
			w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 30, UUID: uuids[3].UUID}, func() error { return sim.ReportXID(3, 30) })
			c.hangs(t, sim)
			w.arrives(t, gpu.Event{Kind: gpu.EventXID, XID: 31, UUID: uuids[2].UUID}, func() error { return sim.ReportXID(2, 31) })
			must(t, sim.ClearFaults())
			w.ends(t)
		})
	}
}

func TestAGPUThatHangsInRegistrationIsUnreadable(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	l := nvml.New(sim.NVML())
	snapshot(t, l)
	hang(t, sim, "DeviceRegisterEvents", 3)
	w := watch(t, l)
	w.expect(t, gpu.EventAnswer)
	require.Error(t, "the unreadable GPU", others(t, snapshot(t, l)).Err, gpu.ErrTimeout)
	w.stop()
	require.Error(t, "Watch while a call hangs", <-w.done, gpu.ErrTimeout)
}

func TestAWatchOfGPUsWithoutEventsWaits(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "t4")
	l := nvml.New(sim.NVML())
	address := snapshot(t, l).GPUs[0].Address
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceRegisterEvents", Return: gonvml.ERROR_NOT_SUPPORTED, Count: 4}))
	w := watch(t, l)
	eventually(t, "all GPUs refuse", func() bool {
		state, err := sim.State()
		must(t, err)
		return len(state.CallFaults) == 0
	})
	hang(t, sim, "DeviceGetMemoryInfo", 0)
	if err := l.Check(t.Context(), address); err == nil {
		t.Error("a GPU that hangs answers")
	}
	w.expect(t, gpu.EventAnswer)
	w.ends(t)
}
