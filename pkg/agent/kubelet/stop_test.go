// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"
)

func stoppable(t *testing.T) (p *Plugin, clock *testclock.FakeClock) {
	t.Helper()
	p, _ = newTestPlugin(fake.NewClientset(), &claims{})
	clock = p.Clock.(*testclock.FakeClock)
	_, p.cancel = context.WithCancel(t.Context())
	return p, clock
}

// call runs act as a call of the kubelet.
func (p *Plugin) call(ctx context.Context, act func()) error {
	_, err := p.guard(ctx, nil, nil, func(context.Context, any) (any, error) { act(); return nil, nil })
	return err
}

func TestNoCallRunsAfterStop(t *testing.T) {
	p, _ := stoppable(t)
	acted := 0
	must(t, p.call(t.Context(), func() { acted++ }))
	if !p.Stop() {
		t.Error("calls are under way, of which there are none")
	}
	if err := p.call(t.Context(), func() { acted++ }); status.Code(err) != codes.Unavailable {
		t.Errorf("a late call: %v, want code %v", err, codes.Unavailable)
	}
	if acted != 1 {
		t.Errorf("%d calls have acted, want the first one only", acted)
	}
}

func TestStopReportsACallThatHangs(t *testing.T) {
	p, clock := stoppable(t)
	hangs, release, returned := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() { returned <- p.call(t.Context(), func() { close(hangs); <-release }) }()
	<-hangs
	ended := make(chan bool)
	go func() { ended <- p.Stop() }()
	for !clock.HasWaiters() {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait for the call")
		}
	}
	clock.Step(callsDrain)
	if <-ended {
		t.Error("it says that all calls have ended, and one hangs")
	}
	close(release)
	if err := <-returned; err != nil {
		t.Errorf("the call ended with %v", err)
	}
}
