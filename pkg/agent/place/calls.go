// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"math"

	"golang.org/x/sync/semaphore"
)

// Calls are the current calls of the kubelet. A caller whose work must not run beside one of them excludes all.
// A call that waits for the end of an exclusion returns when its context ends, which a mutex cannot do.
type Calls struct{ held *semaphore.Weighted }

// all is the number of calls that an exclusion takes the place of.
const all = math.MaxInt64

// NewCalls returns none.
func NewCalls() Calls { return Calls{semaphore.NewWeighted(all)} }

// Begin begins a call, which [Calls.End] ends. It waits while calls are excluded. The error is the context's.
func (c Calls) Begin(ctx context.Context) error { return c.held.Acquire(ctx, 1) }

// End ends a call.
func (c Calls) End() { c.held.Release(1) }

// Exclude waits until all calls have ended, and lets none begin until [Calls.Admit].
func (c Calls) Exclude() { _ = c.held.Acquire(context.Background(), all) } // the only error is the context's

// TryExclude is Exclude if no call runs. It reports whether it was.
func (c Calls) TryExclude() bool { return c.held.TryAcquire(all) }

// Admit lets calls begin again.
func (c Calls) Admit() { c.held.Release(all) }
