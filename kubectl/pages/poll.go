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
	ratio int

	mu sync.Mutex
	// last is the value of the last attempt that has not failed; nil if there is none.
	last *T
	// failure is the error of the last attempt.
	failure error
	// next is the time before which no attempt begins.
	next time.Time
	// ended is closed when the attempt that runs has ended; nil while none runs.
	ended chan struct{}
}

const (
	// readTimeout bounds an attempt.
	readTimeout = time.Minute
	// patience is the time after which a page shows an older value.
	patience = 3 * time.Second
	// idleRatio is the ratio of readings of the cluster.
	idleRatio = 4
)

// request begins an attempt, unless the value is fresh or an attempt runs. The attempt outlives the
// page that requests it. The returned channel is closed when it has ended; nil if none runs.
func (p *poll[T]) request(ctx context.Context) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil && !time.Now().Before(p.next) {
		p.ended = make(chan struct{})
		go p.attempt(context.WithoutCancel(ctx))
	}
	return p.ended
}

func (p *poll[T]) attempt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := time.Now()
	found, err := p.read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
	if err == nil {
		p.last = found
	}
	now := time.Now()
	p.next = now.Add(max(p.fresh, time.Duration(p.ratio)*now.Sub(begin)))
	close(p.ended)
	p.ended = nil
}

// peek returns the last value and the error of the last attempt without waiting. It requests
// an attempt.
func (p *poll[T]) peek(ctx context.Context) (*T, error) {
	p.request(ctx)
	return p.value()
}

// get returns a fresh value, or the last one if the API server is slow or fails. It
// returns nil if there is none. The error is the one of the last attempt.
func (p *poll[T]) get(ctx context.Context) (*T, error) {
	ended := p.request(ctx)
	last, failure := p.value()
	if ended == nil {
		return last, failure
	}
	var enough <-chan time.Time
	if last != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-ended:
	case <-enough:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	return p.value()
}

func (p *poll[T]) value() (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.failure
}
