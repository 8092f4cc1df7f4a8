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
type Observed struct {
	mu  sync.Mutex
	all map[string]int
}

// NewObserved returns an observer that has seen nothing.
func NewObserved() *Observed { return &Observed{all: map[string]int{}} }

// All returns what was recorded.
func (o *Observed) All() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.all)
}

func (o *Observed) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *Observed) count(event string) { o.change(func() { o.all[event]++ }) }

func (o *Observed) set(what string, n int) { o.change(func() { o.all[what] = n }) }

func (o *Observed) replace(what string, byDevice map[string]int) {
	o.change(func() {
		maps.DeleteFunc(o.all, func(key string, _ int) bool { return strings.HasPrefix(key, what) })
		for device, n := range byDevice {
			o.all[what+device] = n
		}
	})
}

// Prepared is recorded.
func (o *Observed) Prepared(kinds string, _ time.Duration, refusal string) {
	o.count("prepared " + kinds + " " + refusal)
}

// Unprepared is recorded.
func (o *Observed) Unprepared(time.Duration, error) { o.count("unprepared") }

// StatusWritten is recorded.
func (o *Observed) StatusWritten(outcome string) { o.count("status " + outcome) }

// PublishFailed is recorded.
func (o *Observed) PublishFailed(reason string) { o.count("publish " + reason) }

// ProgramFault is recorded.
func (o *Observed) ProgramFault(xid uint64, blame, namespace string) {
	o.count(fmt.Sprint("fault ", xid, " ", blame, " ", namespace))
}

// StatusQueue is recorded.
func (o *Observed) StatusQueue(n int) { o.set("queue", n) }

// HeldBack is recorded.
func (o *Observed) HeldBack(n int) { o.set("held back", n) }

// ForeignDevices is recorded.
func (o *Observed) ForeignDevices(n int) { o.set("foreign devices", n) }

// ForeignProcesses is recorded.
func (o *Observed) ForeignProcesses(byDevice map[string]int) {
	o.replace("foreign processes ", byDevice)
}

// UnlimitedContainers is recorded.
func (o *Observed) UnlimitedContainers(byDevice map[string]int) {
	o.replace("unlimited ", byDevice)
}

// DisturbedShares is recorded.
func (o *Observed) DisturbedShares(byCause map[string]int) { o.replace("disturbed ", byCause) }
