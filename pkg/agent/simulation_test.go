// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestSimulation lives the life of a node: what a machine draws happens in any order, on a clock
// of its own, and after each step the promises of the driver hold. See docs/dev/simulation.md.
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		model := rapid.SampledFrom([]string{"1-h200", "a30-bridge"}).Draw(rt, "model")
		events := rapid.SliceOfN(rapid.Custom(drawEvent), 40, 40).Draw(rt, "events")
		var broken error
		synctest.Test(t, func(t *testing.T) { broken = simulate(t, model, events) })
		if broken != nil {
			rt.Fatal(broken)
		}
	})
}

// event is something that happens to a node. which and how choose among its variants. The next
// event comes after the pause; promises are checked if it is long enough to keep them.
type event struct {
	what       int // in happenings
	which, how int
	pause      time.Duration
}

func drawEvent(t *rapid.T) event {
	var choices []int
	for what, h := range happenings {
		choices = append(choices, slices.Repeat([]int{what}, h.often)...)
	}
	return event{
		rapid.SampledFrom(choices).Draw(t, "what"),
		rapid.IntRange(0, claimNames-1).Draw(t, "which"), rapid.IntRange(0, 7).Draw(t, "how"),
		rapid.SampledFrom([]time.Duration{soon, 0, 200 * time.Millisecond}).Draw(t, "pause"),
	}
}

// happenings are the events. The first takes the place of events without which a failure is the
// same. rapid draws those at the front more often than their share.
var happenings = []struct {
	often int
	do    func(s *life, which, how int) error
}{
	{1, func(*life, int, int) error { return nil }},
	{6, (*life).create},
	{6, (*life).prepare},
	{3, (*life).prepareAll},
	{4, (*life).finish},
	{2, (*life).unprepare},
	{1, (*life).run},
	{1, (*life).join},
	{2, (*life).exit},
	{2, (*life).force},
	{2, (*life).recreate},
	{2, (*life).wait},
	{1, (*life).loseAnswer},
	{1, (*life).restart},
	{1, (*life).update},
	{1, (*life).stop},
	{1, (*life).reboot},
	{1, (*life).cleanCDI},
	{1, (*life).offer},
	{1, (*life).lose},
	{1, (*life).slow},
	{1, (*life).disturb},
	{1, (*life).disturbSupervisor},
}

func simulate(t *testing.T, model string, events []event) (broken error) {
	s := newLife(t, model)
	defer s.end()
	for i, e := range events {
		err := happenings[e.what].do(s, e.which, e.how)
		s.pass(e.pause)
		if err == nil && e.pause == soon {
			err = s.check()
		}
		if err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, strings.Join(s.story, "\n"))
		}
	}
	if err := s.calm(); err != nil {
		return fmt.Errorf("when all is over: %w\n%s", err, strings.Join(s.story, "\n"))
	}
	return nil
}
