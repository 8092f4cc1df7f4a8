// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// hardware is a node whose GPUs a test changes.
type hardware struct {
	events chan gpu.Event

	mu       sync.Mutex
	node     gpu.Node
	err      error
	watchErr error
	hangs    bool         // the driver as a whole
	hanging  map[int]bool // GPUs by index
	looks    int
	watches  int
}

func (h *hardware) Snapshot(ctx context.Context) (gpu.Node, error) {
	h.mu.Lock()
	h.looks++
	node, err, hangs, some := h.node, h.err, h.hangs, len(h.hanging) > 0
	node.GPUs, node.Unreadable = slices.Clone(node.GPUs), slices.Clone(node.Unreadable)
	for i := range h.hanging {
		node.GPUs = slices.DeleteFunc(node.GPUs, func(g gpu.GPU) bool { return g.Index == i })
		at := address(i)
		node.Unreadable = append(node.Unreadable, gpu.Unreadable{Index: i, Address: &at, Err: fmt.Errorf("read GPU %d: %w", i, gpu.ErrTimeout)})
	}
	h.mu.Unlock()
	if some {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
	if hangs {
		<-ctx.Done()
		return gpu.Node{}, fmt.Errorf("count the GPUs: %w", gpu.ErrTimeout)
	}
	return node, err
}

func (h *hardware) Watch(ctx context.Context, on func(gpu.Event)) error {
	h.mu.Lock()
	h.watches++
	err := h.watchErr
	h.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		select {
		case e := <-h.events:
			on(e)
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *hardware) change(f func(*hardware)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// silence makes the i-th GPU stop answering.
func (h *hardware) silence(i int, err error) {
	h.change(func(h *hardware) {
		address := h.node.GPUs[i].Address
		h.node.GPUs = slices.Delete(slices.Clone(h.node.GPUs), i, i+1)
		h.node.Unreadable = []gpu.Unreadable{{Index: i, Address: &address, Err: err}}
	})
}

// hang makes GPUs hang, and all others answer.
func (h *hardware) hang(indices ...int) {
	h.change(func(h *hardware) {
		h.hanging = map[int]bool{}
		for _, i := range indices {
			h.hanging[i] = true
		}
	})
}

func gpus(n int) gpu.Node {
	node := gpu.Node{DriverVersion: "570.86.15"}
	for i := range n {
		g := gpu.GPU{Address: address(i), UUID: fmt.Sprintf("GPU-%d", i), Index: i, MemoryBytes: 80 << 30}
		g.Links = []gpu.Link{{Active: true, Remote: gpu.RemoteSwitch}}
		node.GPUs = append(node.GPUs, g)
	}
	return node
}

func address(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(i + 1)} }

// rig is a running controller in a synctest bubble, in which time advances when all
// goroutines wait.
type rig struct {
	*node
	t    *testing.T
	hw   *hardware
	stop func()

	mu         sync.Mutex
	published  []resourceslice.DriverResources
	publishErr error
}

func start(t *testing.T, hw *hardware) *rig {
	return startChanged(t, hw, func(*parts) {})
}

// startChanged is start with changed options.
func startChanged(t *testing.T, hw *hardware, change func(*parts)) *rig {
	hw.events = make(chan gpu.Event)
	r := &rig{t: t, hw: hw}
	options := parts{
		Hardware: hw,
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.publishErr != nil {
				return r.publishErr
			}
			r.published = append(r.published, *resources.DeepCopy())
			return nil
		},
		Catalog: catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: "share"}},
	}
	change(&options)
	r.node = newNode(options)
	_, ctx := ktesting.NewTestContext(t)
	r.stop = run(ctx, t, r.node)
	return r
}

// run runs a controller until the test ends or calls stop, and returns when the
// controller waits.
func run(ctx context.Context, t *testing.T, c *node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time: this is what moves it on
	synctest.Wait()
}

func (r *rig) send(e gpu.Event) {
	r.hw.events <- e
	synctest.Wait()
}

// shown is what the node publishes now: a line for every device with its
// peers and taint.
func (r *rig) shown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.published) == 0 {
		return "nothing"
	}
	var lines []string
	for i, slice := range r.published[len(r.published)-1].Pools["node-1"].Slices {
		lines = append(lines, fmt.Sprintf("slice %d", i))
		for _, device := range slice.Devices {
			line := device.Name
			if peers := device.Attributes["nvlinkPeers"].StringValue; peers != nil && *peers != "" {
				line += " – " + *peers
			}
			for _, taint := range device.Taints {
				line += fmt.Sprintf(" (%s)", taint.Value)
			}
			if device.AllowMultipleAllocations == nil {
				line += " exclusive"
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (r *rig) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.published)
}

func (r *rig) want(shown, state string) {
	r.t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(shown), r.shown()); diff != "" {
		r.t.Errorf("published (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(state, r.State().String()); diff != "" {
		r.t.Errorf("state (-want +got):\n%s", diff)
	}
}

func (r *rig) looks() int {
	r.hw.mu.Lock()
	defer r.hw.mu.Unlock()
	return r.hw.looks
}

const allThree = `
slice 0
gpu-01-00 – 02-00,03-00
gpu-02-00 – 01-00,03-00
gpu-03-00 – 01-00,02-00
`

func TestAHealthyNodeIsPublishedOnceAndScannedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(3)})
		r.want(allThree, "Published: 3 of 3 devices healthy")
		r.pass(time.Minute)
		looks := r.looks()
		r.pass(24 * time.Hour)
		if r.times() != 1 {
			t.Errorf("published %d times", r.times())
		}
		if a := r.looks() - looks; a < 24*5 || a > 24*6 || looks > 2 {
			t.Errorf("%d scans in the first minute, %d in the day that followed; want one in ten to twelve minutes", looks, a)
		}
	})
}

func TestGPUsArePublishedWhenTheDriverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: fmt.Errorf("load libnvidia-ml.so.1: %w", gpu.ErrNotReady)}
		r := start(t, hw)
		r.want("slice 0", "NoDriver; load libnvidia-ml.so.1: not ready")
		began := r.State().Since
		r.pass(time.Hour)
		if since := r.State().Since; since != began {
			t.Errorf("NoDriver since %v, which became %v", began, since)
		}
		if looks := r.looks(); looks < 60 || looks > 70 {
			t.Errorf("%d looks in an hour without a driver, want about one a minute", looks)
		}
		hw.change(func(h *hardware) { h.err, h.node = nil, gpu.Node{DriverVersion: "570.86.15"} })
		r.pass(time.Minute)
		r.want("slice 0", "NoGPUs")
		hw.change(func(h *hardware) { h.node = gpus(3) })
		r.pass(time.Minute)
		r.want(allThree, "Published: 3 of 3 devices healthy")
		if r.times() != 2 {
			t.Errorf("published %d times, want an empty pool and the GPUs", r.times())
		}
	})
}

func TestLooksBeginAtOneSecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: gpu.ErrNotReady}
		r := start(t, hw)
		hw.change(func(h *hardware) { h.err, h.node = nil, gpus(3) })
		r.pass(time.Second)
		r.want(allThree, "Published: 3 of 3 devices healthy")
	})
}

func TestOneGPUOfThreeDoesNotAnswerAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3)}
		hw.silence(1, fmt.Errorf("read GPU 1: %w", gpu.ErrLost))
		r := start(t, hw)
		r.want("slice 0\ngpu-01-00 – 03-00\ngpu-03-00 – 01-00",
			"Published: 2 of 2 devices healthy; GPU at 0000:02:00.0: read GPU 1: GPU lost")
		if _, err := r.GPU(t.Context(), address(1)); !errors.Is(err, gpu.ErrLost) {
			t.Errorf("the GPU that does not answer: %v, want ErrLost", err)
		}
		hw.change(func(h *hardware) { h.node = gpus(3) })
		r.pass(time.Minute)
		r.want(allThree, "Published: 3 of 3 devices healthy")
	})
}

func TestAGPUThatDoesNotEvenTellItsAddressIsInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(1)}
		hw.node.Unreadable = []gpu.Unreadable{{Index: 1, Err: gpu.ErrPermission}}
		r := start(t, hw)
		r.want("slice 0\ngpu-01-00", "Published: 1 of 1 devices healthy; GPU 1: permission denied")
	})
}

func TestAPublishedGPUThatStopsAnsweringKeepsItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		reason string
		is     error
	}{
		"lost":    {fmt.Errorf("read GPU 1: %w", gpu.ErrLost), "lost", gpu.ErrLost},
		"hanging": {fmt.Errorf("read GPU 1: %w", gpu.ErrTimeout), "timeout", gpu.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hw := &hardware{node: gpus(3)}
				r := start(t, hw)
				hw.silence(1, tc.err)
				r.send(gpu.Event{Kind: gpu.EventLost, UUID: "GPU-1"})
				r.want("slice 0\ngpu-01-00 – 03-00\ngpu-02-00 ("+tc.reason+")\ngpu-03-00 – 01-00",
					"Published: 2 of 3 devices healthy; GPU at 0000:02:00.0: "+tc.err.Error())
				if _, err := r.GPU(t.Context(), address(1)); !errors.Is(err, tc.is) {
					t.Errorf("the GPU that does not answer: %v, want %v", err, tc.is)
				}
				if _, err := r.GPU(t.Context(), address(0)); err != nil {
					t.Errorf("a GPU that answers: %v", err)
				}
				hw.change(func(h *hardware) { h.node = gpus(3) })
				r.pass(time.Minute)
				r.want(allThree, "Published: 3 of 3 devices healthy")
			})
		})
	}
}

func TestAGPUThatTheDriverNoLongerListsKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3)}
		r := start(t, hw)
		hw.change(func(h *hardware) { h.node.GPUs = h.node.GPUs[:2] })
		r.send(gpu.Event{Kind: gpu.EventLost})
		r.want("slice 0\ngpu-01-00 – 02-00\ngpu-02-00 – 01-00\ngpu-03-00 (lost)",
			"Published: 2 of 3 devices healthy; GPU at 0000:03:00.0: GPU lost: the driver no longer lists it")
	})
}

func TestADriverThatIsUnloadedLeavesItsGPUsWithATaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(2)}
		r := start(t, hw)
		hw.change(func(h *hardware) { h.err, h.node = gpu.ErrNotReady, gpu.Node{} })
		r.send(gpu.Event{Kind: gpu.EventLost})
		r.want("slice 0\ngpu-01-00 (driver-not-ready)\ngpu-02-00 (driver-not-ready)",
			"Published: 0 of 2 devices healthy; not ready")
		if _, err := r.GPU(t.Context(), address(0)); !errors.Is(err, gpu.ErrNotReady) {
			t.Errorf("a GPU without a driver: %v, want ErrNotReady", err)
		}
	})
}

func TestAFirstScanThatHangsKeepsTheSlicesOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3), hangs: true}
		r := start(t, hw)
		r.pass(time.Minute)
		r.want("nothing", "Looking; count the GPUs: timed out")
		hw.change(func(h *hardware) { h.hangs = false })
		r.pass(2 * time.Minute)
		r.want(allThree, "Published: 3 of 3 devices healthy")
	})
}

func TestXIDs(t *testing.T) {
	for name, tc := range map[string]struct {
		event  gpu.Event
		reason string
	}{
		"off the bus":                      {gpu.Event{Kind: gpu.EventLost, XID: 79}, "xid-79"},
		"a double-bit error":               {gpu.Event{Kind: gpu.EventXID, XID: 48}, "xid-48"},
		"GSP does not answer":              {gpu.Event{Kind: gpu.EventXID, XID: 119}, "xid-119"},
		"an NVLink error":                  {gpu.Event{Kind: gpu.EventLink, XID: 74}, "xid-74"},
		"an uncorrectable ECC error":       {gpu.Event{Kind: gpu.EventECC}, "ecc"},
		"an application's exception":       {gpu.Event{Kind: gpu.EventXID, XID: 13}, ""},
		"an application's page fault":      {gpu.Event{Kind: gpu.EventXID, XID: 31}, ""},
		"an application's end":             {gpu.Event{Kind: gpu.EventXID, XID: 45}, ""},
		"a memory error that is contained": {gpu.Event{Kind: gpu.EventXID, XID: 94}, ""},
		"rows that were remapped":          {gpu.Event{Kind: gpu.EventXID, XID: 63}, ""},
		"a number that is not known":       {gpu.Event{Kind: gpu.EventXID, XID: 9999}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, &hardware{node: gpus(3)})
				tc.event.UUID = "GPU-1"
				r.send(tc.event)
				var got string
				for _, d := range r.Devices() {
					if d.Name.String() == "gpu-02-00" {
						got = d.Reason
					} else if !d.Healthy {
						t.Errorf("%s is unhealthy as well: %s", d.Name, d.Message)
					}
				}
				if got != tc.reason {
					t.Errorf("the GPU's reason is %q, want %q", got, tc.reason)
				}
				if tainted := strings.Contains(r.shown(), "gpu-02-00 – 01-00,03-00 ("+tc.reason+")"); tainted != (tc.reason != "") {
					t.Errorf("published:\n%s", r.shown())
				}
				if _, err := r.GPU(t.Context(), address(1)); err != nil {
					t.Errorf("a GPU that answers: %v", err)
				}
			})
		})
	}
}

func TestALinkThatGoesDownChangesThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3)}
		r := start(t, hw)
		hw.change(func(h *hardware) { h.node.GPUs[0].Links = []gpu.Link{{Active: false}} })
		r.send(gpu.Event{Kind: gpu.EventLink, UUID: "GPU-0"})
		r.want("slice 0\ngpu-01-00\ngpu-02-00 – 03-00\ngpu-03-00 – 02-00", "Published: 3 of 3 devices healthy")
	})
}

func TestEveryLinkThatGoesDownIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(2)}
		two := []gpu.Link{{Number: 0, Active: true, Remote: gpu.RemoteSwitch}, {Number: 1, Active: true, Remote: gpu.RemoteSwitch}}
		hw.node.GPUs[0].Links = two
		r := start(t, hw)
		for i := range two {
			two = slices.Clone(two)
			two[i].Active = false
			hw.change(func(h *hardware) { h.node.GPUs[0].Links = two })
			r.send(gpu.Event{Kind: gpu.EventLink, UUID: "GPU-0", XID: 74})
		}
		r.want("slice 0\ngpu-01-00 (xid-74)\ngpu-02-00", "Published: 1 of 2 devices healthy; GPU at 0000:01:00.0: XID 74: an NVLink error")
	})
}

func TestEventsThatChangeNothingPublishNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(3)})
		for range 10 {
			r.send(gpu.Event{Kind: gpu.EventLink, UUID: "GPU-0"})
		}
		if r.times() != 1 {
			t.Errorf("published %d times", r.times())
		}
	})
}

func TestPublishingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: gpu.ErrNotReady}
		r := start(t, hw)
		r.mu.Lock()
		r.publishErr = errors.New("no API server")
		r.mu.Unlock()
		hw.change(func(h *hardware) { h.err, h.node = nil, gpus(3) })
		r.pass(time.Second)
		r.want("slice 0", "NoDriver; publish the node's devices: no API server")
		if !r.State().Unpublished {
			t.Error("what could not be published counts as published")
		}
		r.mu.Lock()
		r.publishErr = nil
		r.mu.Unlock()
		r.pass(time.Minute)
		r.want(allThree, "Published: 3 of 3 devices healthy")
		if r.State().Unpublished {
			t.Error("the published devices count as unpublished")
		}
	})
}

func TestWatchingBeginsAgainAfterItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3), watchErr: errors.New("wait for GPU events: unknown error")}
		r := start(t, hw)
		r.pass(time.Hour)
		hw.mu.Lock()
		watches := hw.watches
		hw.mu.Unlock()
		if watches < 60 || watches > 70 {
			t.Errorf("%d attempts to watch in an hour, want about one a minute", watches)
		}
		hw.change(func(h *hardware) { h.watchErr = nil })
		r.pass(time.Minute)
		hw.silence(1, gpu.ErrLost)
		r.send(gpu.Event{Kind: gpu.EventLost, UUID: "GPU-1"})
		if !strings.Contains(r.shown(), "gpu-02-00 (lost)") {
			t.Errorf("published:\n%s", r.shown())
		}
	})
}

func TestWithoutEventsTheGPUsArePublishedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3), watchErr: gpu.ErrNotSupported}
		r := start(t, hw)
		r.pass(time.Hour)
		r.want(allThree, "Published: 3 of 3 devices healthy")
		if hw.watches != 1 {
			t.Errorf("%d attempts to watch", hw.watches)
		}
	})
}

func TestGPUWaitsForTheFirstScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: gpu.ErrNotReady}
		r := start(t, hw)
		brief, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := r.GPU(brief, address(0))
		if !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), "NoDriver") {
			t.Errorf("without a driver: %v; want ErrNotReady and the state", err)
		}

		found := make(chan error, 1)
		go func() {
			g, err := r.GPU(t.Context(), address(0))
			if err == nil && g.UUID != "GPU-0" {
				err = fmt.Errorf("got %s", g.UUID)
			}
			found <- err
		}()
		synctest.Wait()
		hw.change(func(h *hardware) { h.err, h.node = nil, gpus(2) })
		if err := <-found; err != nil {
			t.Errorf("when the driver has come: %v", err)
		}
		if _, err := r.GPU(t.Context(), address(7)); !errors.Is(err, gpu.ErrNotFound) {
			t.Errorf("a GPU that the node does not have: %v, want ErrNotFound", err)
		}
	})
}

func TestSubscribersHearOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(2)})
		changed, cancel := r.Subscribe()
		left, leave := r.Subscribe()
		leave()
		select {
		case <-changed:
			t.Error("a change before anything changed")
		default:
		}
		r.send(gpu.Event{Kind: gpu.EventXID, UUID: "GPU-1", XID: 79})
		select {
		case <-changed:
		default:
			t.Error("no change after an XID")
		}
		select {
		case <-left:
			t.Error("a change for a subscriber that has left")
		default:
		}
		cancel()
		want := []state.DeviceHealth{
			{Name: kind.Whole(address(0)), UUID: "GPU-0", Healthy: true},
			{Name: kind.Whole(address(1)), UUID: "GPU-1", Reason: "xid-79", Message: "XID 79: the GPU has fallen off the bus"},
		}
		if diff := cmp.Diff(want, r.Devices()); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	})
}

func TestAttributesAreThePublishedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(2)})
		attributes := r.state.Snapshot().Attributes(r.settings, kind.Whole(address(1)))
		if uuid := attributes["uuid"].StringValue; uuid == nil || *uuid != "GPU-1" {
			t.Errorf("attributes %v", attributes)
		}
		if attributes := r.state.Snapshot().Attributes(r.settings, kind.Whole(address(7))); attributes != nil {
			t.Errorf("a GPU that is not there has attributes: %v", attributes)
		}
	})
}

// dropped is what the slice controller reports where the API server knows
// neither consumable capacity nor taints.
func dropped(resources resourceslice.DriverResources) error {
	desired := &resourceapi.ResourceSlice{}
	desired.Spec.Devices = resources.Pools["node-1"].Slices[0].Devices
	actual := desired.DeepCopy()
	for i := range actual.Spec.Devices {
		actual.Spec.Devices[i].AllowMultipleAllocations = nil
		actual.Spec.Devices[i].Taints = nil
		for name, capacity := range actual.Spec.Devices[i].Capacity {
			capacity.RequestPolicy = nil
			actual.Spec.Devices[i].Capacity[name] = capacity
		}
	}
	return fmt.Errorf("wrapped: %w", &resourceslice.DroppedFieldsError{PoolName: "node-1", DesiredSlice: desired, ActualSlice: actual})
}

func TestWithoutConsumableCapacityEveryGPUBecomesExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(1)})
		r.want("slice 0\ngpu-01-00", "Published: 1 of 1 devices healthy")
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		problem := dropped(r.published[0])
		for range 3 {
			r.HandleError(ctx, problem, "create ResourceSlice")
		}
		synctest.Wait()
		r.want("slice 0\ngpu-01-00 exclusive", "Published: 1 of 1 devices healthy")
		if r.times() != 2 {
			t.Errorf("published %d times, want once more", r.times())
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if strings.Count(log, "GPUs are not shared") != 1 || !strings.Contains(log, "DRAConsumableCapacity") {
			t.Errorf("want one warning that names the feature gate, got:\n%s", log)
		}
	})
}

func TestAnErrorThatIsRepeatedIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(1)})
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		for range 3 {
			r.HandleError(ctx, errors.New("no API server"), "processing ResourceSlice objects")
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if strings.Count(log, "no API server") != 1 {
			t.Errorf("want one line, got:\n%s", log)
		}
		r.want("slice 0\ngpu-01-00", "Published: 1 of 1 devices healthy")
	})
}
