// SPDX-License-Identifier: Apache-2.0

// Package source keeps the last good value of a source, such as another program, that may fail
// or hang. [Last] is for values that are brought; [Reader] reads them, in a loop and on request.
package source

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Last is the last good value of a source.
type Last[T any] struct {
	Value T
	// Good is set once there was a value.
	Good bool
	// Err is why there is no later value; nil if the last answer was good.
	Err error
}

// Known reports whether the source has answered, with a value or an error.
func (l Last[T]) Known() bool { return l.Good || l.Err != nil }

// Set takes an answer of the source.
func (l *Last[T]) Set(value T, err error) {
	if l.Err = err; err == nil {
		l.Value, l.Good = value, true
	}
}

// Reader reads a source, one read at a time. Its methods may be called from any goroutine.
type Reader[T any] struct {
	// failed is the log message of a read that fails, and answered is called after each answer.
	failed   string
	answered func(ctx context.Context, before, now Last[T])

	turn  chan struct{} // has an item during a read
	known chan struct{} // closed after the first answer

	mu   sync.Mutex
	last Last[T]
	// begun counts reads, and ended is the number of the read with the last answer.
	begun, ended int
}

// NewReader returns a reader that has read nothing yet. It logs failed if the error of a read
// is another than before, and calls answered after each read.
func NewReader[T any](failed string, answered func(ctx context.Context, before, now Last[T])) *Reader[T] {
	return &Reader[T]{failed: failed, answered: answered, turn: make(chan struct{}, 1), known: make(chan struct{})}
}

// Last returns the last good value.
func (r *Reader[T]) Last() Last[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Wait waits for the first answer, for at most the limit, or until ctx ends.
func (r *Reader[T]) Wait(ctx context.Context, c clock.Clock, limit time.Duration) {
	timer := c.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.known:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// Refresh reads the source, given its last value. Concurrent calls share a read that began after
// all of them.
func (r *Reader[T]) Refresh(ctx context.Context, read func(ctx context.Context, last T) (T, error)) {
	r.mu.Lock()
	called := r.begun
	r.mu.Unlock()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-r.turn }()
	last, due := r.begin(called)
	if !due {
		return
	}
	value, err := read(ctx, last)
	if ctx.Err() == nil {
		r.set(ctx, value, err)
	}
}

// begin counts a read and returns the last value, unless a read after the one with the number has
// ended.
func (r *Reader[T]) begin(called int) (last T, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended > called {
		return last, false
	}
	r.begun++
	return r.last.Value, true
}

// set takes the answer to the read that has the turn.
func (r *Reader[T]) set(ctx context.Context, value T, err error) {
	r.mu.Lock()
	before := r.last
	r.last.Set(value, err)
	r.ended = r.begun
	now := r.last
	r.mu.Unlock()
	if err != nil && fmt.Sprint(err) != fmt.Sprint(before.Err) {
		klog.FromContext(ctx).Info(r.failed, "err", err)
	}
	r.answered(ctx, before, now)
	if !before.Known() {
		close(r.known)
	}
}

// Follow reads the source until ctx ends: at the start, after wake has an item, and at
// intervals. next returns the time until the read after a good one; 0 for no such read.
func (r *Reader[T]) Follow(ctx context.Context, c clock.Clock, wake <-chan struct{}, read func(ctx context.Context, last T) (T, error), next func(T) time.Duration) {
	pause := Backoff()
	for {
		r.Refresh(ctx, read)
		var again <-chan time.Time
		if last := r.Last(); last.Err != nil {
			again = c.After(pause.Step())
		} else {
			pause = Backoff()
			if after := next(last.Value); after > 0 {
				again = c.After(after)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again:
		}
	}
}

// Backoff returns the back-off between attempts to read from, or write to, another program.
func Backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
}
