// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestActivityReportsATaskThatTakesTooLong(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	a := NewActivity(clock, time.Minute)
	clock.Step(time.Hour)
	if err := a.Err(); err != nil {
		t.Errorf("nothing is under way: %v", err)
	}
	end := a.Begin()
	clock.Step(time.Minute)
	if err := a.Err(); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	clock.Step(time.Second)
	if err := a.Err(); err == nil || err.Error() != "hangs for 1m1s, restart the agent" {
		t.Errorf("beyond the limit: %v", err)
	}
	end()
	if err := a.Err(); err != nil {
		t.Errorf("the task has ended: %v", err)
	}
}
