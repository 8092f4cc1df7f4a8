// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Activity records when the current task of a loop began, to detect a task that
// hangs. Tasks of one activity do not overlap.
type Activity struct {
	clock clock.PassiveClock
	limit time.Duration

	mu    sync.Mutex
	since time.Time // zero between tasks
}

// NewActivity returns an activity whose tasks take less than the limit.
func NewActivity(c clock.PassiveClock, limit time.Duration) *Activity {
	return &Activity{clock: c, limit: limit}
}

// Begin starts a task and returns the function that ends it.
func (a *Activity) Begin() (end func()) {
	a.set(a.clock.Now())
	return func() { a.set(time.Time{}) }
}

func (a *Activity) set(since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = since
}

// Err returns an error if the current task takes too long.
func (a *Activity) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return nil
	}
	if took := a.clock.Since(a.since); took > a.limit {
		return fmt.Errorf("hangs for %v, restart the agent", took.Round(time.Second))
	}
	return nil
}
