package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// guard admits one call at a time to a part of the driver and survives callers
// that give up on it.
type guard struct {
	slot chan struct{} // holds one token while a call runs

	mu sync.Mutex
	// running is the operation under way, stuck whether a caller waited for it
	// until its deadline.
	running string
	stuck   bool
}

func newGuard() *guard {
	return &guard{slot: make(chan struct{}, 1)}
}

// do runs call under the guard and waits for it until ctx ends, then fails with
// gpu.ErrTimeout and the reason of ctx. A call given up at its deadline makes
// later ones fail at once until it returns.
func do[T any](ctx context.Context, g *guard, operation string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if running := g.stuckIn(); running != "" {
		return none, fmt.Errorf("%s: %w: the driver has not answered an earlier call (%s)", operation, gpu.ErrTimeout, running)
	}
	select {
	case <-ctx.Done(): // wins over a free slot
		return none, fmt.Errorf("%s: %w: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
	default:
	}
	select {
	case g.slot <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
	}
	g.set(operation)
	// The result goes through a channel and not a variable, because the
	// goroutine may outlive this call.
	results := make(chan result, 1)
	go func() {
		value, err := call()
		g.set("")
		<-g.slot
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			g.giveUp()
		}
		return none, fmt.Errorf("%s: %w: no answer from the driver: %w", operation, gpu.ErrTimeout, context.Cause(ctx))
	}
}

func (g *guard) set(operation string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running, g.stuck = operation, false
}

func (g *guard) giveUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuck = g.running != ""
}

// stuckIn names the operation that somebody gave up on; empty if there is none.
func (g *guard) stuckIn() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stuck {
		return ""
	}
	return g.running
}

// busy reports whether a call is under way.
func (g *guard) busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running != ""
}
