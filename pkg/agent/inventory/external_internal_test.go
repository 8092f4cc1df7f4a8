// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// lister is a kubelet whose list of external allocations changes.
type lister struct {
	mu     sync.Mutex
	listed []gpu.ExternalAllocation
	err    error
	reads  int
}

func (l *lister) list(allocations ...gpu.ExternalAllocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = allocations
}

func (l *lister) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lister) ExternalAllocations(context.Context) ([]gpu.ExternalAllocation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return l.listed, l.err
}

// count returns the number of reads since the last call.
func (l *lister) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.reads = 0 }()
	return l.reads
}

func TestAnExternalAllocationEndsWhenTheKubeletLeavesItOutForAWhile(t *testing.T) {
	one, two := gpu.ExternalAllocation{Device: "GPU-1", Pod: "team/one"}, gpu.ExternalAllocation{Device: "GPU-2", Pod: "team/two"}
	synctest.Test(t, func(t *testing.T) {
		kubelet, s := &lister{}, state.New(state.Fixed{})
		kubelet.list(one, two)
		i := New(Options{State: s, Hardware: still{}, External: kubelet, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go i.followExternal(ctx)
		after := func(d time.Duration, what string, want ...gpu.ExternalAllocation) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			require.Same(t, what+": external allocations", want, s.Snapshot().Conditions.External, cmpopts.EquateEmpty())
		}
		after(0, "at the start", one, two)
		kubelet.list() // it restarts
		after(externalTime, "a kubelet lists no pods", one, two)
		kubelet.list(one, two)
		after(confirmTime, "it knows its pods again", one, two)
		kubelet.list(two)
		after(externalTime, "a pod has ended", one, two)
		after(confirmTime, "it is left out again", two)
		kubelet.list()
		i.RefreshExternal(ctx)
		after(0, "a claim is prepared")
	})
}

// The kubelet reports no changes, and each read costs it something.
func TestExternalAllocationsAreReadWhileTheyMayChange(t *testing.T) {
	old := gpu.ExternalAllocation{Device: "GPU-1", Pod: "team/old"}
	synctest.Test(t, func(t *testing.T) {
		kubelet, s := &lister{err: errors.New("no such file")}, state.New(state.Fixed{})
		i := New(Options{State: s, Hardware: still{}, External: kubelet, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go i.followExternal(ctx)
		after := func(d time.Duration, what string, reads int, want ...gpu.ExternalAllocation) {
			t.Helper()
			kubelet.count()
			<-time.After(d)
			synctest.Wait()
			now := s.Snapshot().Conditions
			if diff := cmp.Diff(want, now.External, cmpopts.EquateEmpty()); diff != "" || !now.ExternalKnown {
				t.Errorf("%s: known %t, external allocations (-want +got):\n%s", what, now.ExternalKnown, diff)
			}
			if n := kubelet.count(); n < reads || n > reads+reads/10 {
				t.Errorf("%s: %d reads, want %d", what, n, reads)
			}
		}
		synctest.Wait()
		after(time.Hour, "a kubelet that does not answer", 60)
		kubelet.fail(nil)
		after(time.Minute, "it answers", 1)
		after(24*time.Hour, "no device plugin", 0)
		i.RefreshExternal(ctx)
		after(0, "a claim is prepared", 0)
		i.SetDevicePlugin(true)
		kubelet.list(old)
		after(time.Hour, "a device plugin", 360, old)
		i.SetDevicePlugin(false)
		after(time.Hour, "its pod outlives it", 360, old)
		kubelet.fail(errors.New("connection refused"))
		kubelet.list()
		after(time.Hour, "the kubelet is away", 60, old)
		kubelet.fail(nil)
		after(time.Hour, "its pod has ended", 2)
	})
}
