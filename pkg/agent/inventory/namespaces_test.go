// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// still is hardware without events.
type still struct{ node gpu.Node }

func (s still) Snapshot(context.Context) (gpu.Node, error) { return s.node, nil }

func (still) Watch(context.Context, func(gpu.Event)) error { return gpu.ErrNotSupported }

// answers is a supervisor whose answer changes.
type answers struct {
	mu   sync.Mutex
	has  bool
	err  error
	hung bool // until the deadline
}

func (a *answers) set(has bool, err error, hung bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.has, a.err, a.hung = has, err, hung
}

func (a *answers) Namespaces(ctx context.Context) (bool, error) {
	a.mu.Lock()
	has, err, hung := a.has, a.err, a.hung
	a.mu.Unlock()
	if hung {
		<-ctx.Done()
		return false, gpu.ErrTimeout
	}
	return has, err
}

// noClaims is a node without claims.
type noClaims struct{}

func (noClaims) Read(context.Context) state.Claimed { return state.Claimed{} }

// running is an inventory and the state that it writes.
type running struct {
	*Inventory
	*state.State
}

// run runs an inventory of two GPUs, the second in MIG mode, until the test ends.
func run(t *testing.T, source NamespaceSource) running {
	t.Helper()
	s := state.New(state.Fixed{})
	i := New(Options{
		State:      s,
		Hardware:   still{gpu.Node{GPUs: []gpu.GPU{{Address: at(1), UUID: "GPU-1"}, {Address: at(2), UUID: "GPU-2", MIG: gpu.MIG{Enabled: true}}}}},
		Namespaces: source, Clock: clock.RealClock{},
	})
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { i.Run(ctx, noClaims{}) })
	t.Cleanup(func() { stop(); parts.Wait() })
	return running{i, s}
}

// namespacesOf returns whether the two GPUs have namespaces.
func namespacesOf(t *testing.T, i running) (first, second bool) {
	t.Helper()
	all, err := i.GPUs(t.Context())
	require.NoError(t, err)
	return all[0].MPSNamespaces, all[1].MPSNamespaces
}

func TestTheFirstClaimFindsNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := run(t, &answers{has: true})
		if first, second := namespacesOf(t, i); !first || second {
			t.Errorf("namespaces %t and %t, want them on the GPU that is not in MIG mode", first, second)
		}
	})
}

func TestANodeWithoutASupervisorHasNoNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if first, _ := namespacesOf(t, run(t, nil)); first {
			t.Error("there are namespaces")
		}
	})
}

func TestASupervisorThatHangsDelaysClaimsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor := &answers{hung: true}
		began := time.Now()
		i := run(t, supervisor)
		if first, _ := namespacesOf(t, i); first {
			t.Error("there are namespaces")
		}
		if waited := time.Since(began); waited > namespacePatience {
			t.Errorf("the first scan took %s, want %s at most", waited, namespacePatience)
		}
	})
}

func TestAChangeOfNamespacesIsPublishedAndAnErrorChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor := &answers{err: gpu.ErrNotReady}
		i := run(t, supervisor)
		namespacesOf(t, i)
		changed, cancel := i.Subscribe()
		defer cancel()
		for _, step := range []struct {
			has, want bool
			err       error
		}{{has: true, want: true}, {err: gpu.ErrNotReady, want: true}, {has: false, want: false}} {
			supervisor.set(step.has, step.err, false)
			published, _ := namespacesOf(t, i)
			for limit := time.After(3 * time.Minute); limit != nil; {
				select {
				case <-changed:
					published, _ = namespacesOf(t, i)
				case <-limit:
					limit = nil
				}
			}
			if published != step.want {
				t.Errorf("%+v: namespaces %t are published", step, published)
			}
		}
	})
}

// Agent and supervisor of a node start at the same time.
func TestAClaimFindsTheNamespacesOfASupervisorThatHasJustStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		supervisor := &answers{err: gpu.ErrNotReady}
		i := run(t, supervisor)
		i.RefreshNamespaces(t.Context())
		if first, _ := namespacesOf(t, i); first {
			t.Error("there are namespaces before the supervisor has started")
		}
		supervisor.set(true, nil, false)
		i.RefreshNamespaces(t.Context())
		if first, _ := namespacesOf(t, i); !first {
			t.Error("there are no namespaces after the supervisor has started")
		}
		// It is not queried again for each claim.
		supervisor.set(false, nil, false)
		i.RefreshNamespaces(t.Context())
		if first, _ := namespacesOf(t, i); !first {
			t.Error("a supervisor that has answered was queried again")
		}
	})
}
