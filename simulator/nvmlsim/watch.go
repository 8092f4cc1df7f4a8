// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watch waits until any process changes the state of a node. It does not poll. It
// does not miss a change between its creation and a wait.
type watch struct{ file *os.File }

func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the simulated node: %w", err)
	}
	// Non-blocking, so that reads obey deadlines and end with close.
	file := os.NewFile(uintptr(fd), "inotify:"+dir)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_DELETE_SELF); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("watch the simulated node in %s: %w", dir, err)
	}
	return &watch{file: file}, nil
}

// wait returns true after a change, and false when the deadline has passed.
// After close it returns an error.
func (w *watch) wait(deadline time.Time) (bool, error) {
	if err := w.file.SetReadDeadline(deadline); err != nil {
		return false, err
	}
	// One read returns all events so far.
	var buffer [4096]byte
	switch _, err := w.file.Read(buffer[:]); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

func (w *watch) close() { _ = w.file.Close() }

// bell is a watch for many waiters, such as the event sets of a process. The kernel
// limits the watches of a user to about a hundred.
type bell struct {
	dir string
	// every is set if the bell rings at intervals instead, see [Sim.PollEvents].
	every time.Duration

	mu    sync.Mutex
	users int
	end   func()
	rung  chan struct{} // closed with the next change
}

// PollEvents makes the library look for events, and for the end of faults, at intervals, instead
// of waiting for the kernel to tell of them: for programs with a clock of their own. It is called before the library is
// used.
func (s *Sim) PollEvents(every time.Duration) { s.library.bell.every = every }

// join keeps the bell going until leave.
func (b *bell) join() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == 0 {
		b.rung = make(chan struct{})
		if err := b.start(); err != nil {
			return err
		}
	}
	b.users++
	return nil
}

// start makes the bell ring until end is called. The caller has the lock.
func (b *bell) start() error {
	ended := make(chan struct{})
	if b.every > 0 {
		b.end = func() { close(ended) }
		ticker := time.NewTicker(b.every)
		go func() {
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					b.ring(ended)
				case <-ended:
					return
				}
			}
		}()
		return nil
	}
	w, err := newWatch(b.dir)
	if err != nil {
		return err
	}
	b.end = func() { close(ended); w.close() }
	go func() {
		for {
			if _, err := w.wait(time.Time{}); err != nil {
				return
			}
			b.ring(ended)
		}
	}()
	return nil
}

func (b *bell) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.end()
	}
}

// next returns a channel that is closed with the next change.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

// ring wakes the waiters, unless the bell has ended.
func (b *bell) ring(ended <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-ended:
	default:
		close(b.rung)
		b.rung = make(chan struct{})
	}
}

// waitUntil blocks until done says so of the state, or the deadline has
// passed.
func (s *Sim) waitUntil(deadline time.Time, done func(*State) bool) error {
	if every := s.library.bell.every; every > 0 {
		return s.pollUntil(deadline, every, done)
	}
	w, err := newWatch(s.dir)
	if err != nil {
		return err
	}
	defer w.close()
	for {
		st, err := s.load()
		if err != nil {
			return err
		}
		if done(st) {
			return nil
		}
		if changed, err := w.wait(deadline); err != nil || !changed {
			return err
		}
	}
}

// pollUntil is waitUntil for [Sim.PollEvents].
func (s *Sim) pollUntil(deadline time.Time, every time.Duration, done func(*State) bool) error {
	for {
		st, err := s.load()
		left := time.Until(deadline)
		if err != nil || done(st) || !deadline.IsZero() && left <= 0 {
			return err
		}
		if !deadline.IsZero() {
			every = min(every, left)
		}
		<-time.After(every)
	}
}
