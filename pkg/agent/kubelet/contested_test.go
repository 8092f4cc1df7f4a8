// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// New claims must not get the device from the first round on.
func TestTheFirstRoundFindsTheDevicesOfAClaimThatTheAPIHasForgotten(t *testing.T) {
	c := holding("kept", "gone")
	c.inUse = true
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("kept")), c)
	heard := hear(p)
	p.reconcile(t.Context())
	if diff := cmp.Diff([]types.UID{"uid-gone"}, heard.contested); diff != "" {
		t.Errorf("contested (-want +got):\n%s", diff)
	}
}

func TestAClaimWithoutItsFilesIsNotReportedAsPrepared(t *testing.T) {
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("one"), allocated("two")), holding("one", "two"))
	p.refused = map[types.UID]bool{"uid-one": true}
	p.calls.Lock() // of the kubelet, which may write files: nothing is examined
	p.prepareAgain(t.Context())
	p.calls.Unlock()
	p.reconcile(t.Context())
	if one, two := p.status.wanted["uid-one"], p.status.wanted["uid-two"]; one != nil || two == nil {
		t.Errorf("status %+v of the claim without its files, want none over that of the failed prepare, and %+v of the other", one, two)
	}
}

func TestForeignProcessesAreCountedAndInTheConditionsOfTheClaim(t *testing.T) {
	c := holding("one", "two")
	one, two := allocated("one"), allocated("two")
	p := newTestPlugin(fake.NewClientset(testNode(), one, two), c)
	c.foreign = []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}}
	heard := hear(p)
	p.reconcile(t.Context())
	if got := observations(p.Observer)["foreign processes gpu-1b-00"]; got != 1 {
		t.Errorf("gpu_dra_foreign_processes is %v, want 1", got)
	}
	if diff := cmp.Diff(c.foreign, heard.foreign); diff != "" {
		t.Errorf("the agent serves other foreign processes (-want +got):\n%s", diff)
	}
	status := p.status.wanted["uid-one"]
	if status == nil || len(status.devices[0].more) != 1 || !strings.Contains(status.devices[0].more[0].message, "process 4711") {
		t.Fatalf("the status of the claim is %+v, want a condition that names the process", status)
	}
	if message := status.devices[0].more[0].message; !strings.Contains(message, "a process without a claim for the device computes on it") || !strings.Contains(message, "the log of the agent of node node names its pod") {
		t.Errorf("message %q, want the texts of the table of causes", message)
	}
	if other := p.status.wanted["uid-two"]; other == nil || len(other.devices[0].more) != 0 {
		t.Errorf("the status of the other claim is %+v, want no condition", other)
	}
	c.foreign = nil
	c.checked = []kind.Name{kindtest.Name("gpu-1b-00")}
	p.reconcile(t.Context())
	if n, found := observations(p.Observer)["foreign processes gpu-1b-00"]; found {
		t.Errorf("%d foreign processes after the process has ended", n)
	}
	if len(heard.foreign) != 0 || len(heard.checked) != 1 {
		t.Errorf("after the process has ended the agent serves %v, checked %v", heard.foreign, heard.checked)
	}
	// Without an answer of the hardware nothing is known, not even that there is none.
	c.checked, c.foreignErr = nil, errors.New("the journal cannot be read")
	p.reconcile(t.Context())
	if len(heard.foreign) != 0 || len(heard.checked) != 0 {
		t.Errorf("after an error the agent serves %v, checked %v", heard.foreign, heard.checked)
	}
}

// The next round is minutes away.
func TestForeignProcessesAreAsNewAsTheQuestion(t *testing.T) {
	c := holding("one", "gone", "other")
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("one")), c)
	clock := testclock.NewFakeClock(testTime)
	p.Clock, p.ReconcileInterval, p.checks = clock, time.Hour, make(chan chan struct{})
	heard := hear(p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go p.reconcileLoop(ctx)
	ask := func(when string, want int) {
		t.Helper()
		p.CheckForeign(t.Context())
		if len(heard.foreign) != want {
			t.Errorf("%s: foreign processes %+v, want %d", when, heard.foreign, want)
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
	p.CheckForeign(ctx) // it does not wait for a loop that has ended
}
