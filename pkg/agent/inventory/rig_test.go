// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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
func (h *hardware) silence(i int, err error) { h.change(func(h *hardware) { h.hide(i, err) }) }

// hide is silence for callers that hold mu.
func (h *hardware) hide(i int, err error) {
	address := h.node.GPUs[i].Address
	h.node.GPUs = slices.Delete(slices.Clone(h.node.GPUs), i, i+1)
	h.node.Unreadable = []gpu.Unreadable{{Index: i, Address: &address, Err: err}}
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

// rig is a running inventory in a synctest bubble, in which time advances when all
// goroutines wait.
type rig struct {
	*inventory.Inventory
	*state.State
	t    *testing.T
	hw   *hardware
	stop func()
}

func start(t *testing.T, hw *hardware) *rig { return startWith(t, hw, func(*inventory.Options) {}) }

// startWith is start with further options.
func startWith(t *testing.T, hw *hardware, change func(*inventory.Options)) *rig {
	return startBeside(t, hw, noClaims{}, change)
}

// startBeside is startWith on a node with claims.
func startBeside(t *testing.T, hw *hardware, claims inventory.Claims, change func(*inventory.Options)) *rig {
	t.Helper()
	hw.events = make(chan gpu.Event)
	s := state.New(state.Fixed{})
	o := inventory.Options{State: s, Hardware: hw, Clock: clock.RealClock{}}
	change(&o)
	r := &rig{Inventory: inventory.New(o), State: s, t: t, hw: hw}
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, claims) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *rig) send(e gpu.Event) {
	r.hw.events <- e
	synctest.Wait()
}

// scan makes the inventory scan, and waits for the end of the scan.
func (r *rig) scan() {
	r.RequestScan()
	synctest.Wait()
}

func (r *rig) looks() int {
	r.hw.mu.Lock()
	defer r.hw.mu.Unlock()
	return r.hw.looks
}

// wantTaints compares the unhealthy GPUs and the causes, such as "gpu-01-00 lost".
func (r *rig) wantTaints(want string) {
	r.t.Helper()
	var all []string
	for _, d := range r.Snapshot().Health() {
		if !d.Healthy {
			all = append(all, d.Name.String()+" "+d.Cause)
		}
	}
	if got := strings.Join(all, ", "); got != want {
		r.t.Errorf("tainted %q, want %q; state: %s", got, want, r.Snapshot())
	}
}

// want compares the state of the node.
func (r *rig) want(want string) {
	r.t.Helper()
	if got := r.Snapshot().String(); got != want {
		r.t.Errorf("state %q\n want %q", got, want)
	}
}
