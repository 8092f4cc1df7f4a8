// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// callLimit is how long a call may take before it counts as hanging. Without
	// persistence mode the first call starts a GPU, which takes up to 20 s.
	callLimit = 20 * time.Second
	// answerLimit is the limit of a reading, which a working GPU completes in
	// milliseconds. It is also the time that Snapshot waits for one GPU.
	answerLimit = 2 * time.Second
)

// guard admits one call at a time to a part of the driver. A call keeps its place
// when its caller stops waiting.
type guard struct {
	// onStuck is called once for each call that does not return in time; may be
	// nil.
	onStuck func()

	mu      sync.Mutex
	running *running // nil if no call is under way
}

// running is a call under way.
type running struct {
	operation string
	timer     *time.Timer
	// returned is closed when the call has returned. stuck is closed when the call has
	// exceeded its limit or its caller has waited until its deadline.
	returned, stuck chan struct{}
}

func newGuard(onStuck func()) *guard { return &guard{onStuck: onStuck} }

// do runs call under the guard and returns its result. It returns gpu.ErrTimeout
// with the reason if ctx ends or the call exceeds callLimit. After a deadline or the
// limit, all other callers, waiting ones included, fail at once until the
// call returns.
func do[T any](ctx context.Context, g *guard, operation string, call func() (T, error)) (T, error) {
	return doWithin(ctx, g, callLimit, operation, call)
}

// doWithin is do with another limit for the call. The limit does not include the
// wait for the call under way.
func doWithin[T any](ctx context.Context, g *guard, limit time.Duration, operation string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	mine, err := g.enter(ctx, operation, limit)
	if err != nil {
		return none, err
	}
	// The result goes through a channel and not a variable, because the
	// goroutine may outlive this call.
	results := make(chan result, 1)
	go func() {
		value, err := call()
		g.leave(mine)
		results <- result{value, err}
	}()
	var why error
	select {
	case r := <-results:
		return r.value, r.err
	case <-mine.stuck:
		why = fmt.Errorf("%s: %w: no answer from the driver within %s", operation, gpu.ErrTimeout, limit)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			g.giveUp(mine)
		}
		why = fmt.Errorf("%s: %w: no answer from the driver: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
	}
	select {
	case r := <-results: // the call returned meanwhile
		return r.value, r.err
	default:
		return none, why
	}
}

// enter begins a call as soon as no other is under way. It returns gpu.ErrTimeout if
// ctx ends first or the call under way is stuck.
func (g *guard) enter(ctx context.Context, operation string, limit time.Duration) (*running, error) {
	for {
		mine, other := g.tryEnter(operation, limit, ctx.Err() == nil)
		if mine != nil {
			return mine, nil
		}
		if other == nil {
			return nil, fmt.Errorf("%s: %w: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
		}
		if other.isStuck() {
			return nil, other.error(operation)
		}
		select {
		case <-other.stuck:
			return nil, other.error(operation)
		case <-other.returned:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w: the driver is busy (%s): %w", operation, gpu.ErrTimeout, other.operation, context.Cause(ctx))
		}
	}
}

// tryEnter begins a call and returns it if may is true and no other call is under
// way. Otherwise it returns the call under way, if there is one.
func (g *guard) tryEnter(operation string, limit time.Duration, may bool) (mine, other *running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != nil || !may {
		return nil, g.running
	}
	r := &running{operation: operation, returned: make(chan struct{}), stuck: make(chan struct{})}
	r.timer = time.AfterFunc(limit, func() { g.giveUp(r) })
	g.running = r
	return r, nil
}

func (g *guard) leave(r *running) {
	r.timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = nil
	close(r.returned)
}

// giveUp marks the call as stuck, so that others fail until it returns.
func (g *guard) giveUp(r *running) {
	g.mu.Lock()
	first := g.running == r && !r.isStuck()
	if first {
		close(r.stuck)
	}
	g.mu.Unlock()
	if first && g.onStuck != nil {
		g.onStuck()
	}
}

// current returns the call under way, or nil.
func (g *guard) current() *running {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// isStuck reports whether the call has exceeded its time.
func (r *running) isStuck() bool {
	select {
	case <-r.stuck:
		return true
	default:
		return false
	}
}

// error returns the error for other operations while the call is stuck.
func (r *running) error(operation string) error {
	return fmt.Errorf("%s: %w: the driver has not answered an earlier call (%s)", operation, gpu.ErrTimeout, r.operation)
}

// busy reports whether a call is under way.
func (g *guard) busy() bool { return g.current() != nil }
