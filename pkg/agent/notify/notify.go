// SPDX-License-Identifier: Apache-2.0

// Package notify signals to subscribers that something has changed. It carries no
// data: a subscriber reads the present state from its source.
package notify

import "sync"

// Subscribers are the subscribers of one source. The zero value has none. Its
// methods may be called from any goroutine.
type Subscribers struct {
	mu       sync.Mutex
	channels map[chan struct{}]bool
}

// Subscribe returns a channel that has an item after each change until cancel is
// called. Changes that are not received yet are one item.
func (s *Subscribers) Subscribe() (changed <-chan struct{}, cancel func()) {
	channel := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels == nil {
		s.channels = map[chan struct{}]bool{}
	}
	s.channels[channel] = true
	return channel, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.channels, channel)
	}
}

// Notify puts an item into the channel of each subscriber. It never blocks.
func (s *Subscribers) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel := range s.channels {
		Wake(channel)
	}
}

// Wake puts an item into a channel with room for one, unless one is waiting there.
func Wake(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
