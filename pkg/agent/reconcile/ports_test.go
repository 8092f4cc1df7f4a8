// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// claims is a fake of [Claims] with the state set by a test. It records the calls.
type claims struct {
	held []claim.Claim

	// inUse is set while processes compute on the devices of every claim.
	inUse bool
	// isSwept is set if a recovery removes leftovers.
	isSwept bool
	// released, if set, is called when a claim is released.
	released func()
	// recovered, if set, gets an item after each Recover.
	recovered chan struct{}

	// foreign are on held devices; checked and foreignErr are the other results.
	foreign    []claim.ForeignProcess
	checked    []kind.Name
	foreignErr error
	// limitChecks are of the devices with limited containers.
	limitChecks []claim.LimitCheck

	unprepared []types.UID
}

func holding(names ...string) *claims { return &claims{held: agenttest.Holding(names...)} }

func (c *claims) WhyUnneeded(held claim.Claim, object *resourceapi.ResourceClaim) string {
	return held.WhyUnneeded(object, agenttest.Driver, "node")
}

func (c *claims) Release(_ context.Context, held claim.Claim, object *resourceapi.ResourceClaim) (bool, error) {
	if c.WhyUnneeded(held, object) == "" {
		return false, errors.New("the claim is needed")
	}
	if c.inUse {
		return false, gpu.ErrInUse
	}
	if c.released != nil {
		c.released()
	}
	c.unprepared = append(c.unprepared, held.UID)
	return true, nil
}

func (c *claims) RecordConsumers(context.Context) error { return nil }

func (c *claims) RecordPods(context.Context, claim.Claim, *resourceapi.ResourceClaim) error {
	return nil
}

func (c *claims) ForeignProcesses(context.Context, []claim.Claim) ([]claim.ForeignProcess, []kind.Name, error) {
	return c.foreign, c.checked, c.foreignErr
}

func (c *claims) CheckLimits(context.Context) ([]claim.LimitCheck, error) {
	return c.limitChecks, nil
}

func (c *claims) Held(context.Context) ([]claim.Claim, error) { return c.held, nil }

func (c *claims) LostSpecs(context.Context) ([]types.UID, error) { return nil, nil }

func (c *claims) Recover(context.Context) (claim.Report, error) {
	if c.recovered != nil {
		c.recovered <- struct{}{}
	}
	var found claim.Report
	if c.isSwept {
		found.Swept = map[string][]string{"CreatePartition": {"gpu-1b-00"}}
	}
	return found, errors.New("one of the claims cannot be repaired")
}

// told is a [Ledger], [Foreign], [Hardware], [Accounts], [Reporter] and [Tasks]. It records the
// calls, which do not overlap.
type told struct {
	events            []string
	needed, contested []types.UID
	foreign           []claim.ForeignProcess
	checked           []kind.Name
	refused           map[types.UID]bool
	// reported are the claims of the last report, and findings those of all devices.
	reported map[types.UID]bool
	findings report.Findings
}

func (t *told) tell(event string, of ...any) {
	t.events = append(t.events, strings.TrimSpace(fmt.Sprintln(append([]any{event}, of...)...)))
}

func (t *told) Changed() { t.tell("changed") }

func (t *told) IsRefused(uid types.UID) bool { return t.refused[uid] }

func (t *told) SetContested(needed, unneeded []types.UID, _ []claim.ForeignProcess) {
	t.needed, t.contested = needed, unneeded
}

func (t *told) SetForeignProcesses(found []claim.ForeignProcess, checked []kind.Name) {
	t.foreign, t.checked = found, checked
}

func (t *told) RequestScan() { t.tell("scan") }

func (t *told) Seen(object *resourceapi.ResourceClaim) { t.tell("seen", object.UID) }

func (t *told) Begin() func() { return func() {} }

func (t *told) Prepared(_ context.Context, holders []report.Holder, found report.Findings) {
	t.reported, t.findings = map[types.UID]bool{}, found
	for _, h := range holders {
		t.reported[h.UID] = h.Object.UID == h.UID
	}
}

func (t *told) Interrupted(_ context.Context, daemons []report.MPSDaemon) {
	t.findings.Daemons = daemons
}

// accounts and reporter record that a claim was released.
type (
	accounts struct{ *told }
	reporter struct{ *told }
)

func (a accounts) Released(uid types.UID) { a.tell("released", uid) }
func (r reporter) Released(uid types.UID) { r.tell("forgotten", uid) }

func newTestReconciler(client *fake.Clientset, c *claims) (*Reconciler, *told) {
	t := &told{refused: map[types.UID]bool{}}
	r := New(Options{
		Place: place.Place{DriverName: agenttest.Driver, DataDir: "/nowhere", CDIDir: "/nowhere"}, NodeName: "node", Client: client, Claims: c,
		Ledger: t, Foreign: t, Hardware: t, Accounts: accounts{t}, Reporter: reporter{t}, Observer: agenttest.NewObserved(), Tasks: t,
		Clock: testclock.NewFakeClock(agenttest.Now()), Calls: place.NewCalls(),
	})
	r.reads = flowcontrol.NewFakeAlwaysRateLimiter()
	return r, t
}

// observations returns the metrics.
func (r *Reconciler) observations() map[string]int { return r.Observer.(*agenttest.Observed).All() }

// The node publishes what claims hold, meters it, and scans hardware that may have changed.
func TestTheNodeLearnsWhatBecomesOfClaims(t *testing.T) {
	object := agenttest.Allocated("one")
	client := fake.NewClientset(agenttest.Node(), object)
	c := holding("one")
	r, told := newTestReconciler(client, c)
	for _, tc := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a repair", func() { r.repair(t.Context()) }, []string{"changed"}},
		{"a repair that removes leftovers", func() { c.isSwept = true; r.repair(t.Context()) }, []string{"changed", "scan"}},
		{"a round in which the claim is needed", func() { r.reconcile(t.Context()) }, []string{"seen uid-one"}},
		{"a round that releases an ended claim", func() {
			must(t, client.ResourceV1().ResourceClaims("team").Delete(t.Context(), "one", metav1.DeleteOptions{}))
			for range massConfirmations {
				r.reconcile(t.Context())
			}
		}, []string{"changed", "released uid-one", "forgotten uid-one"}},
	} {
		told.events = nil
		tc.do()
		require.Same(t, "events of "+tc.name, tc.want, told.events)
	}
}
