// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

func TestNamesOfPods(t *testing.T) {
	t.Parallel()
	ref := claim.Ref{Namespace: "team", Name: "one", UID: "uid-one"}
	held := []claim.Claim{{Ref: ref, Pods: []types.UID{podUID(1)}, Devices: []claim.Device{{Name: kind.Whole(firstGPU)}}}}
	object := reservedFor(1)
	now, reads, passes := testingclock.NewFakePassiveClock(time.Unix(1000, 0)), 0, 0
	var unanswered error
	var group map[types.UID][]types.UID
	p := NewPods(now, func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) {
		reads++
		return object, unanswered
	}, func([]claim.Ref) (map[types.UID][]types.UID, error) {
		passes++
		return group, nil
	})
	want := func(wantReads int, wantErr error, seen []types.UID, names map[types.UID]string) {
		t.Helper()
		got, err := p.namesByClaim(t.Context(), held, map[gpu.PCIAddress][]types.UID{firstGPU: seen})
		if diff := cmp.Diff(names, got["uid-one"]); !errors.Is(err, wantErr) || reads != wantReads || diff != "" {
			t.Errorf("%d reads, want %d; %v, want %v (-want +got):\n%s", reads, wantReads, err, wantErr, diff)
		}
	}
	one, both := map[types.UID]string{podUID(1): "pod-1"}, map[types.UID]string{podUID(1): "pod-1", podUID(2): "pod-2"}
	unanswered = gpu.ErrTimeout
	want(1, gpu.ErrTimeout, []types.UID{podUID(1)}, nil)
	unanswered = nil
	want(1, nil, []types.UID{podUID(1)}, nil) // no retry so soon
	now.SetTime(now.Now().Add(podNamesPause))
	want(2, nil, []types.UID{podUID(1)}, one)
	want(3, nil, []types.UID{podUID(1), podUID(3)}, one) // of no claim
	want(3, nil, []types.UID{podUID(1), podUID(3)}, one)
	object = reservedFor(1, 2) // a pod joins
	want(4, nil, []types.UID{podUID(1), podUID(2), podUID(3)}, both)
	// A pod that only the kernel shows, as one of a PodGroup.
	group = map[types.UID][]types.UID{"uid-one": {podUID(4)}}
	withGroup := map[types.UID]string{podUID(1): "pod-1", podUID(2): "pod-2", podUID(4): ""}
	before := passes
	for range 3 {
		want(5, nil, []types.UID{podUID(1), podUID(2), podUID(3), podUID(4)}, withGroup)
	}
	if passes != before+1 {
		t.Errorf("%d passes over the processes for one new pod, want 1", passes-before)
	}
	group = nil
	now.SetTime(now.Now().Add(podNamesPause))
	want(5, nil, []types.UID{podUID(3)}, both) // the foreign process is read again, the group's pod has ended
	p.Observe(reservedFor(1))
	want(5, nil, nil, one)
	held = nil
	want(5, nil, nil, nil)
	held = []claim.Claim{{Ref: ref}}
	want(5, nil, nil, nil)
}

// An agent that has just started knows no names yet.
func TestTheNamesOfAClaimsPodsAreReadOnce(t *testing.T) {
	t.Parallel()
	reads := 0
	p := NewPods(testingclock.NewFakePassiveClock(time.Unix(1000, 0)), func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) {
		reads++
		if reads == 1 {
			return nil, gpu.ErrTimeout
		}
		return reservedFor(1), nil
	}, nil)
	accounts := Accounts{Pods: p}
	for i, want := range []map[types.UID]string{nil, {podUID(1): "pod-1"}, {podUID(1): "pod-1"}} {
		got := accounts.PodsOf(t.Context(), claim.Ref{Namespace: "team", Name: "one", UID: "uid-one"})
		if diff := cmp.Diff(want, got); diff != "" || reads != min(i+1, 2) {
			t.Errorf("%d reads (-want +got):\n%s", reads, diff)
		}
	}
}
