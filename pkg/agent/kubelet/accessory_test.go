// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"
)

// Claims are prepared without events.
func TestAPartThatPanicsIsStartedAgain(t *testing.T) {
	p := newTestPlugin(fake.NewClientset(), &claims{})
	clock := testclock.NewFakeClock(testTime)
	p.Clock = clock
	ctx, cancel := context.WithCancel(t.Context())
	starts, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		p.serveAccessory(ctx, "events", func(ctx context.Context) {
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
