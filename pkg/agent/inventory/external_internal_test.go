// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// lister is a kubelet whose list of external allocations changes.
type lister struct {
	mu     sync.Mutex
	listed []gpu.ExternalAllocation
}

func (l *lister) list(allocations ...gpu.ExternalAllocation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = allocations
}

func (l *lister) ExternalAllocations(context.Context) ([]gpu.ExternalAllocation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed, nil
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
			if diff := cmp.Diff(want, s.Snapshot().Conditions.External, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: external allocations (-want +got):\n%s", what, diff)
			}
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
