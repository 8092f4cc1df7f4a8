// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
)

// Whenever callers come and however reads go: each has the answer to a read that began after it
// came, and there is one read at a time.
func TestEachCallerHasAnAnswerThatIsNotOlderThanItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 60).Draw(rt, "arrivals in ms")
		var failure error
		if rapid.Bool().Draw(rt, "the source is away") {
			failure = errors.New("away")
		}
		synctest.Test(t, func(t *testing.T) {
			type span struct{ from, to time.Time }
			var reads []span
			r := source.NewReader("Cannot read", func(context.Context, source.Last[int], source.Last[int]) {})
			read := func(context.Context, int) (int, error) {
				began := time.Now()
				<-time.After(5 * time.Millisecond)
				reads = append(reads, span{began, time.Now()})
				return len(reads), failure
			}
			calls := make([]span, len(arrivals))
			var callers sync.WaitGroup
			for i, after := range arrivals {
				callers.Go(func() {
					<-time.After(time.Duration(after) * time.Millisecond)
					calls[i].from = time.Now()
					r.Refresh(t.Context(), read)
					calls[i].to = time.Now()
				})
			}
			callers.Wait()
			for i, next := range reads[1:] {
				if next.from.Before(reads[i].to) {
					t.Errorf("two reads at a time: %v and %v", reads[i], next)
				}
			}
			for _, c := range calls {
				if !slices.ContainsFunc(reads, func(s span) bool { return !s.from.Before(c.from) && !s.to.After(c.to) }) {
					t.Errorf("no read from %v to %v: there are %v", c.from, c.to, reads)
				}
			}
			if last := r.Last(); (last.Err == nil) != (failure == nil) || last.Good != (failure == nil) || !last.Known() {
				t.Errorf("the last value is %+v", last)
			}
			if len(reads) > 41/5+2 {
				t.Errorf("%d callers cause %d reads", len(calls), len(reads))
			}
		})
	})
}

func TestAFailedReadKeepsTheLastValueAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var failure error
		reads, wake := 0, make(chan struct{}, 1)
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		r := source.NewReader("Cannot read", func(context.Context, source.Last[int], source.Last[int]) {})
		r.Wait(t.Context(), clock.RealClock{}, time.Minute) // nothing answers
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Follow(ctx, clock.RealClock{}, wake, func(context.Context, int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				reads++
				return reads, failure
			}, func(int) time.Duration { return 0 })
		}()
		r.Wait(t.Context(), clock.RealClock{}, 0)
		want := func(when string, value, least, most int) {
			t.Helper()
			<-time.After(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if got := r.Last().Value; got != value || reads < least || reads > most {
				t.Errorf("%s: %d after %d reads, want %d after %d to %d", when, got, reads, value, least, most)
			}
		}
		want("at the start", 1, 1, 1)
		mu.Lock()
		failure = errors.New("away")
		mu.Unlock()
		wake <- struct{}{}
		want("while it fails", 1, 60, 70)
		mu.Lock()
		failure, reads = nil, 0
		mu.Unlock()
		want("after it", 1, 1, 1)
		mu.Lock()
		failure, reads = errors.New("away"), 0
		mu.Unlock()
		wake <- struct{}{}
		<-time.After(10 * time.Second)
		mu.Lock()
		if reads != 4 {
			t.Errorf("%d reads in the first 10 s of a later failure, want 4: after 1, 2 and 4 s", reads)
		}
		mu.Unlock()
		if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); strings.Count(log, "Cannot read") != 2 {
			t.Errorf("want a line for each failure, got:\n%s", log)
		}
		cancel()
		<-done
		ended, end := context.WithCancel(t.Context())
		end()
		r.Refresh(ended, func(context.Context, int) (int, error) { return 99, nil })
		if got := r.Last().Value; got == 99 {
			t.Error("a read after the end of its context counts")
		}
	})
}
