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
	// callLimit is how long a call may take before the driver counts as hanging
	// in it. Without persistence mode the first call starts a GPU, which takes
	// up to 20 s.
	callLimit = 20 * time.Second
	// answerLimit is the same for a question that a working GPU answers at once,
	// and how long Snapshot waits for one GPU.
	answerLimit = 2 * time.Second
)

// guard admits one call at a time to a part of the driver and survives callers
// that give up on it.
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
	// returned is closed when the call has returned, stuck when it has exceeded
	// its limit or its caller has waited until its deadline.
	returned, stuck chan struct{}
}

func newGuard(onStuck func()) *guard { return &guard{onStuck: onStuck} }

// do runs call under the guard and waits for it until ctx ends or the call
// exceeds callLimit, then fails with gpu.ErrTimeout and the reason. A call that
// was given up at a deadline makes others fail at once until it returns, those
// that wait for their turn too.
func do[T any](ctx context.Context, g *guard, operation string, call func() (T, error)) (T, error) {
	return doWithin(ctx, g, callLimit, operation, call)
}

// doWithin is do with another limit for the call. Waiting for the call under way
// does not count.
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
	case r := <-results: // just in time
		return r.value, r.err
	default:
		return none, why
	}
}

// enter begins a call as soon as no other is under way. It fails with
// gpu.ErrTimeout when ctx ends first, or when the call under way is stuck.
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

// tryEnter begins a call and returns it, or returns the one under way. It begins
// none unless the caller may.
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

// giveUp makes others fail until the call returns.
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

// current returns the call under way; nil if there is none.
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

// error is what others get while the call is stuck.
func (r *running) error(operation string) error {
	return fmt.Errorf("%s: %w: the driver has not answered an earlier call (%s)", operation, gpu.ErrTimeout, r.operation)
}

// busy reports whether a call is under way.
func (g *guard) busy() bool { return g.current() != nil }
