// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// New claims must not get the device from the first round on.
func TestTheFirstRoundFindsTheDevicesOfAClaimThatTheAPIHasForgotten(t *testing.T) {
	c := holding("kept", "gone")
	c.inUse = true
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("kept")), c)
	r.reconcile(t.Context())
	require.Same(t, "contested", []types.UID{"uid-gone"}, told.contested)
}

func TestAClaimWithoutItsFilesIsNotReportedAsPrepared(t *testing.T) {
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one"), agenttest.Allocated("two"), agenttest.Allocated("three")), holding("one", "two", "three"))
	r.refused = map[types.UID]bool{"uid-one": true}
	told.refused["uid-three"] = true    // to be released
	must(t, r.Calls.Begin(t.Context())) // of the kubelet, which may write files: nothing is examined
	r.prepareAgain(t.Context())
	r.Calls.End()
	r.reconcile(t.Context())
	require.Same(t, "claims with a report over that of the failed prepare or unprepare", map[types.UID]bool{"uid-two": true}, told.reported)
}

func TestForeignProcessesAreCountedAndReported(t *testing.T) {
	c := holding("one", "two")
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one"), agenttest.Allocated("two")), c)
	c.foreign = []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}}
	r.reconcile(t.Context())
	if got := r.observations()["foreign processes gpu-1b-00"]; got != 1 {
		t.Errorf("gpu_dra_foreign_processes is %v, want 1", got)
	}
	for reader, got := range map[string][]claim.ForeignProcess{"viewers": told.foreign, "users": told.findings.Foreign} {
		require.Same(t, "foreign processes for "+reader, c.foreign, got)
	}
	c.foreign = nil
	c.checked = []kind.Name{kindtest.Name("gpu-1b-00")}
	r.reconcile(t.Context())
	if n, found := r.observations()["foreign processes gpu-1b-00"]; found {
		t.Errorf("%d foreign processes after the process has ended", n)
	}
	if len(told.foreign) != 0 || len(told.checked) != 1 {
		t.Errorf("after the process has ended the agent serves %v, checked %v", told.foreign, told.checked)
	}
	// Without an answer of the hardware nothing is known, not even that there is none.
	c.checked, c.foreignErr = nil, errors.New("the journal cannot be read")
	r.reconcile(t.Context())
	if len(told.foreign) != 0 || len(told.checked) != 0 {
		t.Errorf("after an error the agent serves %v, checked %v", told.foreign, told.checked)
	}
}

// The next round is minutes away.
func TestForeignProcessesAreAsNewAsTheQuestion(t *testing.T) {
	c := holding("one", "gone", "other")
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one")), c)
	clock := testclock.NewFakeClock(agenttest.Now())
	r.Clock, r.Interval = clock, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go r.Run(ctx)
	ask := func(when string, want int) {
		t.Helper()
		r.CheckForeign(t.Context())
		if len(told.foreign) != want {
			t.Errorf("%s: foreign processes %+v, want %d", when, told.foreign, want)
		}
	}
	ask("at first", 0)
	c.foreign = []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}}
	ask("asked again at once", 0)
	for range 2 * massConfirmations {
		clock.Step(foreignPause)
		ask("after a pause", 1)
	}
	if len(c.unprepared) > 0 {
		t.Errorf("questions have released %q", c.unprepared)
	}
	cancel()
	r.CheckForeign(ctx) // it does not wait for a loop that has ended
}

func TestTheConflictsOfAHeldDeviceAreReported(t *testing.T) {
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one")), holding("one"))
	r.Conflicts = func(context.Context, kind.Name) []report.Conflict {
		return []report.Conflict{report.ConflictOtherDriver}
	}
	r.reconcile(t.Context())
	want := map[kind.Name][]report.Conflict{kindtest.Name("gpu-1b-00"): {report.ConflictOtherDriver}}
	require.Same(t, "conflicts", want, told.findings.Conflicts)
}

func TestContainersWithoutTheirLimitAreCounted(t *testing.T) {
	device := kindtest.Name("gpu-1b-00")
	for name, tc := range map[string]struct {
		checks []claim.LimitCheck
		want   []int // none if it is not known
	}{
		"all have their limit": {[]claim.LimitCheck{{Device: device}}, []int{0}},
		"one without":          {[]claim.LimitCheck{{Device: device, Unlimited: []claim.Unlimited{{PID: 4711}}}}, []int{1}},
		"an unknown list":      {[]claim.LimitCheck{{Device: device, Unlimited: []claim.Unlimited{{PID: 4711}}, Err: gpu.ErrTimeout}}, nil},
		"no list of limits":    {nil, nil},
	} {
		c := holding("one")
		c.limitChecks = tc.checks
		r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one")), c)
		r.Observer.UnlimitedContainers(map[string]int{"gpu-1b-00": 7}) // of the last round
		r.reconcile(t.Context())
		var got []int
		if n, isKnown := r.observations()["unlimited gpu-1b-00"]; isKnown {
			got = append(got, n)
		}
		if !slices.Equal(got, tc.want) || len(told.findings.Limits) != len(tc.checks) {
			t.Errorf("%s: gpu_dra_unlimited_containers is %v, want %v; reported %+v", name, got, tc.want, told.findings.Limits)
		}
	}
}

// A program that hangs or fails needs no five minutes until its user reads why.
func TestClaimsAreComparedAtOnceWhenADaemonChanges(t *testing.T) {
	r, told := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("one")), holding("one"))
	var now []report.MPSDaemon
	var away error
	r.Daemons = func(context.Context) ([]report.MPSDaemon, error) { return now, away }
	round := func(when string, isCompared bool, waiting int) {
		t.Helper()
		r.Clock.(*testclock.FakeClock).Step(consumersTime)
		r.watchDaemons(t.Context())
		if compared := r.compared.Equal(r.Clock.Now()); compared != isCompared || len(told.findings.Daemons) != waiting {
			t.Errorf("%s: compared %t, daemons %+v", when, compared, told.findings.Daemons)
		}
	}
	now = []report.MPSDaemon{{Name: "gpu-1b-00", Waiting: []types.UID{"uid-trainer"}}}
	round("a pod waits", true, 1)
	round("unchanged", false, 1)
	now, away = nil, errors.New("away")
	round("no answer", false, 1)
	away = nil
	round("it computes", true, 0)
}
