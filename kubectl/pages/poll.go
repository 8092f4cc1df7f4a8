// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"sync"
	"time"
)

// poll reads a value for all pages together: one attempt at a time, and none while it is not
// wanted.
type poll[T any] struct {
	read func(context.Context) (*T, error)
	// fresh is the age up to which a value is used again.
	fresh time.Duration
	// ratio is the time between attempts, as a multiple of an attempt's duration. So a page
	// costs a slow API server little.
	ratio  int
	wanted chan struct{}

	mu sync.Mutex
	// last is the value of the last attempt that has not failed; nil if there is none.
	last *T
	// failure is the error of the last attempt.
	failure error
	// next is the time before which no attempt begins.
	next time.Time
	// changed is closed when an attempt has ended.
	changed chan struct{}
}

const (
	// readTimeout bounds an attempt.
	readTimeout = time.Minute
	// patience is the time after which a page shows an older value.
	patience = 3 * time.Second
	// idleRatio is the ratio of readings of the cluster.
	idleRatio = 4
)

func newPoll[T any](read func(context.Context) (*T, error), fresh time.Duration, ratio int) *poll[T] {
	return &poll[T]{read: read, fresh: fresh, ratio: ratio, wanted: make(chan struct{}, 1), changed: make(chan struct{})}
}

// run reads the value when it is wanted, until ctx ends.
func (p *poll[T]) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wanted:
		}
		if !p.isFresh() {
			p.attempt(ctx)
		}
	}
}

func (p *poll[T]) isFresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.next)
}

func (p *poll[T]) attempt(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := time.Now()
	found, err := p.read(limited)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure = err; err == nil {
		p.last = found
	}
	now := time.Now()
	p.next = now.Add(max(p.fresh, time.Duration(p.ratio)*now.Sub(begin)))
	close(p.changed)
	p.changed = make(chan struct{})
}

// request starts an attempt soon, unless the value is fresh.
func (p *poll[T]) request() {
	select {
	case p.wanted <- struct{}{}:
	default: // an attempt begins soon
	}
}

// peek returns the last value and the error of the last attempt without waiting. It requests
// an attempt.
func (p *poll[T]) peek() (*T, error) {
	p.request()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.failure
}

// get returns a fresh value, or the last one if the API server is slow or fails. It
// returns nil if there is none. The error is the one of the last attempt.
func (p *poll[T]) get(ctx context.Context) (*T, error) {
	p.mu.Lock()
	last, failure, changed, fresh := p.last, p.failure, p.changed, time.Now().Before(p.next)
	p.mu.Unlock()
	if fresh {
		return last, failure
	}
	p.request()
	var enough <-chan time.Time
	if last != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-changed:
	case <-enough:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.failure
}
