// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// Observed is an observer of the packages below pkg/agent. It counts events and keeps the last numbers.
type Observed struct{ recorder }

type recorder struct {
	mu  sync.Mutex
	all map[string]int
}

// NewObserved returns an observer that has seen nothing.
func NewObserved() *Observed { return &Observed{recorder{all: map[string]int{}}} }

// All returns what was recorded.
func (r *Observed) All() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.all)
}

func (r *recorder) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

func (r *recorder) count(event string) { r.change(func() { r.all[event]++ }) }

func (r *recorder) set(what string, n int) { r.change(func() { r.all[what] = n }) }

func (r *recorder) replace(what string, byDevice map[string]int) {
	r.change(func() {
		maps.DeleteFunc(r.all, func(key string, _ int) bool { return strings.HasPrefix(key, what) })
		for device, n := range byDevice {
			r.all[what+device] = n
		}
	})
}

func (r *recorder) Prepared(kinds string, _ time.Duration, refusal string) {
	r.count("prepared " + kinds + " " + refusal)
}

func (r *recorder) Unprepared(time.Duration, error) { r.count("unprepared") }

func (r *recorder) StatusWritten(outcome string) { r.count("status " + outcome) }

func (r *recorder) PublishFailed(reason string) { r.count("publish " + reason) }

func (r *recorder) ProgramFault(xid uint64, blame, namespace string) {
	r.count(fmt.Sprint("fault ", xid, " ", blame, " ", namespace))
}

func (r *recorder) StatusQueue(n int) { r.set("queue", n) }

func (r *recorder) HeldBack(n int) { r.set("held back", n) }

func (r *recorder) ForeignDevices(n int) { r.set("foreign devices", n) }

func (r *recorder) ForeignProcesses(byDevice map[string]int) {
	r.replace("foreign processes ", byDevice)
}

func (r *recorder) UnlimitedContainers(byDevice map[string]int) {
	r.replace("unlimited ", byDevice)
}

func (r *recorder) DisturbedShares(byCause map[string]int) { r.replace("disturbed ", byCause) }
