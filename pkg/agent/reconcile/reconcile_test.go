// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// reconcileTimes reconciles several times and returns the claims that each round
// released.
func reconcileTimes(t *testing.T, r *Reconciler, c *claims, times int) [][]types.UID {
	t.Helper()
	var released [][]types.UID
	for range times {
		c.unprepared = nil
		r.reconcile(t.Context())
		released = append(released, c.unprepared)
		c.held = slices.DeleteFunc(c.held, func(h claim.Claim) bool { return slices.Contains(c.unprepared, h.UID) })
	}
	return released
}

func TestAClaimThatDoesNotNeedItsDevicesIsReleasedByTheSecondRound(t *testing.T) {
	for name, object := range map[string]func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim{
		"gone":     func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim { return nil },
		"replaced": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim { c.UID = "another"; return c },
		"deallocated": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation = nil
			return c
		},
		"allocated another GPU": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Device = "gpu-43-00"
			return c
		},
		"allocated another share of the GPU": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].ShareID = ptr.To[types.UID]("another")
			return c
		},
		"allocated on another node": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Pool = "elsewhere"
			return c
		},
		"allocated another driver's device": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{agenttest.Node(), agenttest.Allocated("kept")}
			if o := object(agenttest.Allocated("unneeded")); o != nil {
				objects = append(objects, o)
			}
			c := holding("kept", "unneeded")
			r, told := newTestReconciler(fake.NewClientset(objects...), c)
			require.Same(t, "released in each round", [][]types.UID{nil, {"uid-unneeded"}, nil}, reconcileTimes(t, r, c, 3))
			require.Same(t, "claims with a report", map[types.UID]bool{"uid-kept": true}, told.reported)
		})
	}
}

func TestARoundThatWouldReleaseSeveralClaimsWaitsForTheNext(t *testing.T) {
	c := holding("kept", "one", "two")
	r, _ := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("kept")), c)
	for i, want := range []struct {
		released []types.UID
		heldBack int
	}{{nil, 2}, {nil, 2}, {[]types.UID{"uid-one", "uid-two"}, 0}} {
		require.Same(t, fmt.Sprintf("released in round %d", i+1), [][]types.UID{want.released}, reconcileTimes(t, r, c, 1))
		if got := r.observations()["held back"]; got != want.heldBack {
			t.Errorf("gpu_dra_reconcile_held_back is %v after round %d, want %v", got, i+1, want.heldBack)
		}
	}
}

func TestAnAPIServerWithoutTheNodeReleasesNothing(t *testing.T) {
	c := holding("one", "two")
	r, told := newTestReconciler(fake.NewClientset(agenttest.Allocated("one")), c)
	for i, released := range reconcileTimes(t, r, c, 4) {
		if released != nil {
			t.Errorf("round %d releases %q", i+1, released)
		}
	}
	if len(told.contested) != 0 {
		t.Errorf("it makes %q contested", told.contested)
	}
}

func TestAClaimIsReleasedAfterItsProcessesHaveEnded(t *testing.T) {
	c := holding("kept", "gone")
	r, _ := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("kept")), c)
	c.inUse = true
	require.Same(t, "released in each round", [][]types.UID{nil, nil, nil}, reconcileTimes(t, r, c, 3))
	if got := r.observations()["held back"]; got != 1 {
		t.Errorf("gpu_dra_reconcile_held_back is %v, want 1", got)
	}
	c.inUse = false
	require.Same(t, "released afterwards", [][]types.UID{{"uid-gone"}}, reconcileTimes(t, r, c, 1))
}

func TestAnErrorOfTheAPIServerRestartsTheRounds(t *testing.T) {
	failing := false
	client := fake.NewClientset(agenttest.Node(), agenttest.Allocated("kept"))
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, apierrors.NewInternalError(errors.New("etcd is down"))
	})
	c := holding("kept", "gone")
	r, told := newTestReconciler(client, c)
	var released [][]types.UID
	for _, failing = range []bool{false, true, false, false} {
		released = append(released, reconcileTimes(t, r, c, 1)...)
		// A claim that cannot be read is neither needed nor unneeded.
		if failing && len(told.contested)+len(told.needed) != 0 {
			t.Errorf("contested %q, needed %q", told.contested, told.needed)
		}
	}
	require.Same(t, "released in each round", [][]types.UID{nil, nil, nil, {"uid-gone"}}, released)
}

// A load balancer between the agent and the API server answers 404 for a minute.
func Test404sOfALoadBalancerReleaseNothing(t *testing.T) {
	client := fake.NewClientset(agenttest.Node())
	client.PrependReactor("get", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet,
			schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceclaims"}, name, "<html>404</html>", 0, true)
	})
	c := holding("one", "two")
	r, _ := newTestReconciler(client, c)
	for i, released := range reconcileTimes(t, r, c, 12) {
		if released != nil {
			t.Fatalf("round %d releases %q", i+1, released)
		}
	}
}

// counted is a rate limiter that counts calls and never waits.
type counted struct {
	flowcontrol.RateLimiter
	waits int
}

func (c *counted) Wait(context.Context) error { c.waits++; return nil }

func TestReconciliationLimitsItsReads(t *testing.T) {
	c := holding("one", "two", "three")
	r, _ := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one"), agenttest.Allocated("two"), agenttest.Allocated("three")), c)
	limiter := &counted{}
	r.reads = limiter
	r.reconcile(t.Context())
	if limiter.waits != 3 {
		t.Errorf("waited %d times for 3 reads", limiter.waits)
	}
}

func TestAgentsThatStartTogetherReadAtDifferentTimes(t *testing.T) {
	const nodes, parts = 1000, 10
	for interval, within := range map[time.Duration]time.Duration{5 * time.Minute: time.Minute, 20 * time.Second: 20 * time.Second} {
		var in [parts]int
		for i := range nodes {
			at := firstRound(fmt.Sprintf("node-%d", i), interval)
			if at < 0 || at >= within {
				t.Fatalf("node-%d begins after %v, want less than %v", i, at, within)
			}
			in[int(at*parts/within)]++
		}
		if most := slices.Max(in[:]); most > nodes/parts*2 {
			t.Errorf("%d of %d nodes ask in the same %v: %v", most, nodes, within/parts, in)
		}
	}
}

func TestClaimsAreRepairedAtTheStartAndComparedAtTheNodesTime(t *testing.T) {
	client := fake.NewClientset(agenttest.Node(), agenttest.Allocated("one"))
	c := holding("one")
	c.recovered = make(chan struct{}, 1)
	r, _ := newTestReconciler(client, c)
	clock := testclock.NewFakeClock(agenttest.Now())
	r.Clock, r.Interval = clock, 5*time.Minute
	read := make(chan struct{}, 1)
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		read <- struct{}{}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	<-c.recovered
	for !clock.HasWaiters() {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait for the node's time")
		}
	}
	clock.Step(firstRound(r.NodeName, r.Interval) - 1)
	select {
	case <-read:
		t.Error("a claim was read before the node's time")
	default:
	}
	clock.Step(1)
	<-read
	cancel()
	<-ended
}
