// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// observed is an [Observer] that counts events and keeps the last numbers.
type observed struct {
	mu  sync.Mutex
	all map[string]int
}

func newObserved() *observed { return &observed{all: map[string]int{}} }

// observations returns what an observer has recorded.
func observations(o Observer) map[string]int {
	of := o.(*observed)
	of.mu.Lock()
	defer of.mu.Unlock()
	return maps.Clone(of.all)
}

func (o *observed) change(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *observed) count(event string) { o.change(func() { o.all[event]++ }) }

func (o *observed) set(what string, n int) { o.change(func() { o.all[what] = n }) }

func (o *observed) replace(what string, byDevice map[string]int) {
	o.change(func() {
		maps.DeleteFunc(o.all, func(key string, _ int) bool { return strings.HasPrefix(key, what) })
		for device, n := range byDevice {
			o.all[what+device] = n
		}
	})
}

func (o *observed) Prepared(kinds string, _ time.Duration, refusal string) {
	o.count("prepared " + kinds + " " + refusal)
}
func (o *observed) Unprepared(time.Duration, error) { o.count("unprepared") }
func (o *observed) StatusWritten(outcome string)    { o.count("status " + outcome) }
func (o *observed) PublishFailed(reason string)     { o.count("publish " + reason) }
func (o *observed) ProgramFault(xid uint64, blame, namespace string) {
	o.count(fmt.Sprint("fault ", xid, " ", blame, " ", namespace))
}
func (o *observed) StatusQueue(n int)    { o.set("queue", n) }
func (o *observed) HeldBack(n int)       { o.set("held back", n) }
func (o *observed) ForeignDevices(n int) { o.set("foreign devices", n) }
func (o *observed) ForeignProcesses(byDevice map[string]int) {
	o.replace("foreign processes ", byDevice)
}
func (o *observed) UnlimitedContainers(byDevice map[string]int) {
	o.replace("unlimited ", byDevice)
}
func (o *observed) DisturbedShares(byCause map[string]int) { o.replace("disturbed ", byCause) }

// noTasks is [Tasks] that records nothing.
type noTasks struct{}

func (noTasks) Begin() func() { return func() {} }
