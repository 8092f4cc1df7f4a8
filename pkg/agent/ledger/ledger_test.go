// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/ledger"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// claims is a fake of [ledger.Claims] that have changed no modes.
type claims struct {
	held func() ([]claim.Claim, error)
}

func (c claims) Held(context.Context) ([]claim.Claim, error) { return c.held() }

func (claims) SwitchedModes(context.Context) (map[gpu.PCIAddress]bool, error) { return nil, nil }

func (claims) ExclusiveGPUs(context.Context) (map[gpu.PCIAddress]bool, error) { return nil, nil }

func (claims) KeptPartitions(context.Context) (map[string]bool, error) { return nil, nil }

func TestADeviceIsContestedUntilNoClaimHoldsIt(t *testing.T) {
	var held []claim.Claim
	var failed error
	for i, uid := range []types.UID{"a", "b", "c"} {
		name := kind.Whole(gpu.PCIAddress{Bus: uint8(i)})
		held = append(held, claim.Claim{Ref: claim.Ref{UID: uid}, Devices: []claim.Device{{Name: name}, {Name: kindtest.Name("node-gpus")}}})
	}
	s := state.New(state.Fixed{})
	c := ledger.New(claims{held: func() ([]claim.Claim, error) { return held, failed }}, &s.Claimed, clock.RealClock{})
	want := func(when string, devices map[uint8]string) {
		t.Helper()
		all := catalog.InUse{}
		for bus, value := range devices {
			all[kind.Whole(gpu.PCIAddress{Bus: bus})] = value
		}
		require.Same(t, "contested "+when, all, c.Read(t.Context()).InUse)
	}
	want("before the first round", nil)
	c.SetContested([]types.UID{"b", "c"}, []types.UID{"a"}, []claim.ForeignProcess{{Device: kindtest.Name("gpu-01-00")}})
	want("after it", map[uint8]string{0: "unneeded-claim", 1: "foreign-process"})
	c.SetRefused("c", true)
	want("while the processes of a claim keep it", map[uint8]string{0: "unneeded-claim", 1: "foreign-process", 2: "unneeded-claim"})
	c.SetContested(nil, nil, nil)
	want("after a round without the API", map[uint8]string{0: "unneeded-claim", 2: "unneeded-claim"})
	failed = errors.New("the disk is gone")
	want("while the records cannot be read", map[uint8]string{0: "unneeded-claim", 2: "unneeded-claim"})
	failed = nil
	c.SetContested([]types.UID{"a"}, nil, nil)
	c.SetRefused("c", false)
	want("when the claims are needed", nil)
	c.SetContested(nil, []types.UID{"a"}, nil)
	released := held
	held = held[1:]
	want("when the claim is released", nil)
	held = released
	want("when the claim is prepared again", nil)
}

// The scheduler tries all pending pods again at each change of the order.
func TestTheOrderOfDevicesFollowsTheClaimsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var held []claim.Claim
		var failed error
		s := state.New(state.Fixed{})
		l := ledger.New(claims{held: func() ([]claim.Claim, error) {
			mu.Lock()
			defer mu.Unlock()
			return held, failed
		}}, &s.Claimed, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		whole := kindtest.Name("gpu-01-00")
		set := func(devices []claim.Device, err error) {
			mu.Lock()
			defer mu.Unlock()
			held, failed = []claim.Claim{{Devices: devices}}, err
		}
		after := func(d time.Duration, what string, isHeld, isTaken bool) {
			t.Helper()
			l.Changed()
			<-time.After(d)
			synctest.Wait()
			now := s.Claimed.Get()
			if _, found := now.Held[whole]; found != isHeld || now.Taken[whole.String()].Whole != isTaken {
				t.Errorf("%s: held %v, taken %v", what, now.Held, now.Taken)
			}
		}
		after(time.Minute, "at the start", false, false)
		set([]claim.Device{{Name: whole, ShareID: new(types.UID)}}, nil)
		after(20*time.Second, "a claim is prepared", true, false)
		after(11*time.Second, "half a minute later", true, true)
		set(nil, errors.New("the disk does not answer"))
		after(time.Minute, "while the records cannot be read", true, true)
		set(nil, nil)
		after(2*time.Second, "the claim is released", false, true)
		after(time.Minute, "half a minute later", false, false)
		cancel()
		<-done
	})
}
