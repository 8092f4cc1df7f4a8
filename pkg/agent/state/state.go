// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
)

// State has the tables of a node. Its methods, and those of its tables, may be called from
// any goroutine.
type State struct {
	Hardware      Table[Hardware]
	Conditions    Table[Conditions]
	Claimed       Table[Claimed]
	Configuration Table[Configuration]
	Features      Table[Features]

	fixed   Fixed
	mu      sync.Mutex // guards all tables
	changes notify.Subscribers
}

// Fixed is what does not change while an agent runs.
type Fixed struct {
	// Node is the name of the node, for remedies.
	Node string
	// NoMemoryLimits is why the node or this agent cannot limit the memory of containers,
	// whatever the driver. It is nil if they can.
	NoMemoryLimits error
}

// New returns the state of a node of which nothing else is known.
func New(fixed Fixed) *State {
	s := &State{fixed: fixed}
	s.Hardware.state, s.Conditions.state, s.Claimed.state, s.Configuration.state, s.Features.state = s, s, s, s, s
	return s
}

// Table is one part of the state. Only its writer calls Set. The Equal of its values compares
// errors by their text.
type Table[V interface{ Equal(other V) bool }] struct {
	state    *State
	value    V
	revision uint64
}

// Get returns the value, which must not be changed.
func (t *Table[V]) Get() V {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	return t.value
}

// Set replaces the value. Subscribers are notified if it does not equal the last one.
func (t *Table[V]) Set(value V) {
	t.state.mu.Lock()
	changed := !t.value.Equal(value)
	if changed {
		t.value = value
		t.revision++
	}
	t.state.mu.Unlock()
	if changed {
		t.state.changes.Notify()
	}
}

// Revisions count the changes of each table.
type Revisions struct {
	Hardware, Conditions, Claimed, Configuration, Features uint64
}

// Revisions returns the present revisions.
func (s *State) Revisions() Revisions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revisions()
}

// revisions is Revisions for callers that hold mu.
func (s *State) revisions() Revisions {
	return Revisions{s.Hardware.revision, s.Conditions.revision, s.Claimed.revision, s.Configuration.revision, s.Features.revision}
}

// Snapshot is the state at one time. Its values must not be changed.
type Snapshot struct {
	Hardware      Hardware
	Conditions    Conditions
	Claimed       Claimed
	Configuration Configuration
	Features      Features
	Fixed         Fixed
	Revisions     Revisions
}

// Snapshot returns the present state.
func (s *State) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.Hardware.value, s.Conditions.value, s.Claimed.value, s.Configuration.value, s.Features.value, s.fixed, s.revisions()}
}

// Subscribe returns a channel that has an item after each change of a table, until cancel is
// called.
func (s *State) Subscribe() (changed <-chan struct{}, cancel func()) { return s.changes.Subscribe() }

// sameText reports whether two errors have the same text. Nil has none.
func sameText(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
