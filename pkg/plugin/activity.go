// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Activity knows since when a task of a loop is under way, so that a task that
// hangs can be told. Tasks of one activity do not overlap.
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

// Begin starts a task, which ends with the function that Begin returns.
func (a *Activity) Begin() (end func()) {
	a.set(a.clock.Now())
	return func() { a.set(time.Time{}) }
}

func (a *Activity) set(since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = since
}

// Err returns an error if the task under way takes too long.
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
