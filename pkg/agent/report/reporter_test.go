// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

var testTime = agenttest.Now()

// claims is a fake of [Claims].
type claims struct{ held []claim.Claim }

func (c *claims) Held(context.Context) ([]claim.Claim, error) { return c.held, nil }

func holding(names ...string) *claims { return &claims{agenttest.Holding(names...)} }

func newTestReporter(client *fake.Clientset, c *claims) (*Reporter, *agenttest.Observed) {
	observed := agenttest.NewObserved()
	return New(Options{
		DriverName: agenttest.Driver, NodeName: "node", Client: client, Claims: c, Observer: observed, Clock: testclock.NewFakeClock(testTime),
	}), observed
}

// round reports on all held claims with the findings of a round.
func (r *Reporter) round(t *testing.T, found Findings) {
	t.Helper()
	held, err := r.Claims.Held(t.Context())
	must(t, err)
	var holders []Holder
	for _, c := range held {
		object, err := r.Client.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
		must(t, err)
		holders = append(holders, Holder{c, object})
	}
	r.Prepared(t.Context(), holders, found)
}

// Claims are prepared without events.
func TestAPartThatPanicsIsStartedAgain(t *testing.T) {
	r, _ := newTestReporter(fake.NewClientset(), &claims{})
	clock := r.Clock.(*testclock.FakeClock)
	ctx, cancel := context.WithCancel(t.Context())
	starts, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		r.serveAccessory(ctx, "events", func(ctx context.Context) {
			n++
			starts <- n
			if n == 1 {
				panic("a report without causes")
			}
			<-ctx.Done()
		})
	}()
	if got := <-starts; got != 1 {
		t.Fatalf("start %d", got)
	}
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(time.Minute)
	if got := <-starts; got != 2 {
		t.Errorf("start %d after the pause, want 2", got)
	}
	cancel()
	<-ended
}
