// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// fromEnvironment returns the number in an environment variable, or another if it has none.
func fromEnvironment(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// chartClasses returns the DeviceClasses of the chart.
func chartClasses(t *testing.T) []*resourceapi.DeviceClass {
	t.Helper()
	classes, err := allocator.ReadClasses(filepath.Join("..", "..", "deployments", "static", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return classes
}

// enoughEvents are events in which each kind takes effect.
const enoughEvents = 10_000

// TestSimulation lives the life of a node: what a machine draws happens in any order, on a clock
// of its own, and after each step the promises of the driver hold. See docs/dev/simulation.md.
func TestSimulation(t *testing.T) {
	inALife, all, took := fromEnvironment("EVENTS", 40), 0, map[string]int{}
	defer func() {
		t.Logf("%d events, of which took effect: %v", all, took)
		for _, h := range happenings[1:] {
			if all >= enoughEvents && took[h.name] == 0 {
				t.Errorf("%s never took effect", h.name)
			}
		}
	}()
	classes := chartClasses(t)
	rapid.Check(t, func(rt *rapid.T) {
		model := rapid.SampledFrom([]string{"1-h200", "a30-bridge"}).Draw(rt, "model")
		events := rapid.SliceOfN(rapid.Custom(drawEvent), inALife, inALife).Draw(rt, "events")
		all += inALife
		var broken error
		synctest.Test(t, func(t *testing.T) { broken = simulate(t, model, classes, events, took) })
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
		choices[drawBits(t, "what", 6)], rapid.IntRange(0, claimNames-1).Draw(t, "which"), drawBits(t, "how", 3),
		rapid.SampledFrom([]time.Duration{soon, 0, 200 * time.Millisecond}).Draw(t, "pause"),
	}
}

// drawBits draws a number of some bits, each as often as any other. rapid prefers small numbers.
func drawBits(t *rapid.T, label string, bits int) (n int) {
	for _, bit := range rapid.SliceOfN(rapid.Bool(), bits, bits).Draw(t, label) {
		n *= 2
		if bit {
			n++
		}
	}
	return n
}

// happenings are the events, 64 with their repetitions. The first takes the place of events
// without which a failure is the same.
var happenings = []struct {
	name  string
	often int
	do    func(s *life, which, how int) error
}{
	{"nothing", 1, func(*life, int, int) error { return nil }},
	{"create", 7, (*life).create},
	{"prepare", 5, (*life).prepare},
	{"prepareAll", 3, (*life).prepareAll},
	{"finish", 4, (*life).finish},
	{"unprepare", 2, (*life).unprepare},
	{"intrude", 1, (*life).intrude},
	{"run", 1, (*life).run},
	{"join", 2, (*life).join},
	{"exit", 2, (*life).exit},
	{"force", 2, (*life).force},
	{"recreate", 2, (*life).recreate},
	{"wait", 2, (*life).wait},
	{"loseAnswer", 1, (*life).loseAnswer},
	{"restart", 2, (*life).restart},
	{"update", 1, (*life).update},
	{"stop", 1, (*life).stop},
	{"reboot", 1, (*life).reboot},
	{"reload", 1, (*life).reload},
	{"reset", 1, (*life).reset},
	{"cleanCDI", 1, (*life).cleanCDI},
	{"offer", 2, (*life).offer},
	{"lose", 1, (*life).lose},
	{"slow", 1, (*life).slow},
	{"disturb", 1, (*life).disturb},
	{"disturbSupervisor", 1, (*life).disturbSupervisor},
	{"disturbDisk", 2, (*life).disturbDisk},
	{"damage", 2, (*life).damage},
	{"report", 2, (*life).report},
	{"repair", 1, (*life).repair},
	{"cordon", 1, (*life).cordon},
	{"plugin", 1, (*life).plugin},
	{"mistake", 1, (*life).mistake},
	{"mend", 2, (*life).mend},
	{"cut", 2, (*life).cut},
	{"setClock", 1, (*life).setClock},
}

func simulate(t *testing.T, model string, classes []*resourceapi.DeviceClass, events []event, took map[string]int) (broken error) {
	s := newLife(t, model, classes, took)
	defer s.end()
	defer func() {
		took["record refused"] += int(s.disk.refused.Load())
		took["record slow"] += int(s.disk.waited.Load())
	}()
	for i, e := range events {
		before := len(s.story)
		err := happenings[e.what].do(s, e.which, e.how)
		if len(s.story) > before {
			took[happenings[e.what].name]++
		}
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
