// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2/ktesting"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// plugins are the device plugins of a node.
type plugins struct {
	mu          sync.Mutex
	allocations []gpu.ExternalAllocation
	err         error
	asked       int
	takes       time.Duration // to answer
	// questions are the start and the end of each request.
	questions [][2]time.Time
	seen      chan bool // sends the controller whether there are any
}

func (p *plugins) ExternalAllocations(context.Context) ([]gpu.ExternalAllocation, error) {
	began := time.Now()
	<-time.After(p.takes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	p.questions = append(p.questions, [2]time.Time{began, time.Now()})
	return slices.Clone(p.allocations), p.err
}

func (p *plugins) give(allocations ...gpu.ExternalAllocation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocations = allocations
}

func (p *plugins) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *plugins) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// exists sets whether a plugin offers GPUs.
func (p *plugins) exists(yes bool) {
	p.seen <- yes
	synctest.Wait()
}

// pass lets a question be answered.
func (p *plugins) pass() {
	<-time.After(p.takes)
	synctest.Wait()
}

func startWith(t *testing.T, hw *hardware, p *plugins) *rig {
	hw.events = make(chan gpu.Event)
	p.seen = make(chan bool)
	r := &rig{t: t, hw: hw}
	r.node = newNode(parts{
		Hardware: hw,
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.published = append(r.published, *resources.DeepCopy())
			return nil
		},
		Node: func(ctx context.Context, on func(cluster.Node, error)) {
			on(cluster.Node{}, nil)
			for {
				select {
				case there := <-p.seen:
					on(cluster.Node{DevicePlugin: there}, nil)
				case <-ctx.Done():
					return
				}
			}
		},
		Plugins: p,
		Catalog: catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: "share"}},
	})
	_, ctx := ktesting.NewTestContext(t)
	run(ctx, t, r.node)
	return r
}

const (
	twoFree = `
slice 0
gpu-01-00 – 02-00
gpu-02-00 – 01-00
`
	firstExternal = `
slice 0
gpu-01-00 – 02-00 (device-plugin)
gpu-02-00 – 01-00
`
	twoWell = "Published: 2 of 2 devices healthy"
)

func TestAGPUThatADevicePluginHasGivenToAPodIsNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		r.want(twoFree, twoWell)
		p.exists(true)
		p.give(gpu.ExternalAllocation{Device: "GPU-0", Pod: "team/old"})
		r.pass(10 * time.Second)
		r.want(firstExternal, twoWell)
		g, err := r.GPU(t.Context(), address(0))
		if err != nil {
			t.Fatal(err)
		}
		if g.ExternalHolder(kind.Whole(g.Address)) != "team/old" {
			t.Errorf("the pod of the GPU is %q, want team/old", g.ExternalHolder(kind.Whole(g.Address)))
		}
		// The plugin goes, its pod stays.
		p.exists(false)
		r.pass(time.Minute)
		r.want(firstExternal, twoWell)
		// A kubelet that has just started lists no pods: the pod may still run after one such answer.
		p.give()
		r.pass(10 * time.Second)
		r.want(firstExternal, twoWell)
		r.pass(5 * time.Second)
		r.want(twoFree, twoWell)
	})
}

func TestTheGPUsOfAPluginThatHasGoneBeforeTheAgentStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{allocations: []gpu.ExternalAllocation{{Device: "GPU-0", Pod: "team/old"}}}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		r.want(firstExternal, twoWell)
		if r.times() != 1 {
			t.Errorf("published %d times: it was offered at first", r.times())
		}
	})
}

func TestExternalAllocationsAreReadOnceWithoutADevicePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		r.pass(24 * time.Hour)
		r.Inventory.RefreshExternal(t.Context())
		if p.times() != 1 {
			t.Errorf("asked %d times, want once", p.times())
		}
		p.exists(true)
		p.exists(false)
		r.pass(time.Minute)
		asked := p.times()
		r.pass(24 * time.Hour)
		if p.times() != asked {
			t.Errorf("asked %d times after the plugin had gone", p.times()-asked)
		}
	})
}

func TestExternalAllocationsAreReadBeforeAClaimIsPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		p.exists(true)
		p.give(gpu.ExternalAllocation{Device: "GPU-1", Pod: "team/new"})
		r.Inventory.RefreshExternal(t.Context())
		g, err := r.GPU(t.Context(), address(1))
		if err != nil {
			t.Fatal(err)
		}
		if g.ExternalHolder(kind.Whole(g.Address)) != "team/new" {
			t.Errorf("the pod of the GPU is %q, want team/new", g.ExternalHolder(kind.Whole(g.Address)))
		}
	})
}

func TestClaimsThatComeTogetherShareAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{takes: 5 * time.Millisecond}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		p.pass() // the first request, at the start
		p.exists(true)
		p.pass()
		before := p.times()
		var claims sync.WaitGroup
		for range 30 {
			claims.Go(func() { r.Inventory.RefreshExternal(t.Context()) })
		}
		claims.Wait()
		if got := p.times() - before; got < 1 || got > 2 {
			t.Errorf("30 claims ask %d times, want one or two", got)
		}
	})
}

// Whenever claims come and however questions go: each has an answer to a
// question that began after it came, and there is one question at a time.
func TestEachClaimHasAnAnswerThatIsNotOlderThanItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 60).Draw(rt, "arrivals in ms")
		fails := rapid.Bool().Draw(rt, "the kubelet is away")
		synctest.Test(t, func(t *testing.T) {
			p := &plugins{takes: 5 * time.Millisecond}
			r := startWith(t, &hardware{node: gpus(2)}, p)
			p.pass()
			p.exists(true)
			if fails {
				p.fail(gpu.ErrNotReady)
			}
			p.pass()
			calls := make([][2]time.Time, len(arrivals))
			var claims sync.WaitGroup
			for i, after := range arrivals {
				claims.Go(func() {
					<-time.After(time.Duration(after) * time.Millisecond)
					calls[i][0] = time.Now()
					r.Inventory.RefreshExternal(t.Context())
					calls[i][1] = time.Now()
				})
			}
			claims.Wait()
			for i, q := range p.questions[1:] {
				if q[0].Before(p.questions[i][1]) {
					t.Errorf("two questions at a time: %v and %v", p.questions[i], q)
				}
			}
			for _, call := range calls {
				if !slices.ContainsFunc(p.questions, func(q [2]time.Time) bool { return !q[0].Before(call[0]) && !q[1].After(call[1]) }) {
					t.Errorf("no question from %v to %v: there are %v", call[0], call[1], p.questions)
				}
			}
		})
	})
}

func TestAKubeletThatIsAwayChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{allocations: []gpu.ExternalAllocation{{Device: "GPU-0", Pod: "team/old"}}}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		p.fail(errors.New("connection refused"))
		p.give()
		r.pass(time.Hour)
		r.want(firstExternal, twoWell)
		p.fail(nil)
		r.pass(time.Minute)
		r.want(twoFree, twoWell)
	})
	synctest.Test(t, func(t *testing.T) {
		p := &plugins{err: errors.New("no such file")}
		r := startWith(t, &hardware{node: gpus(2)}, p)
		r.want(twoFree, twoWell)
	})
}
