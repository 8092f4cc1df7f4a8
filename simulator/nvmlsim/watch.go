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

// watch waits until any process changes the state of a node.
type watch interface {
	// wait returns true after a change, and false when the deadline has passed.
	// After close it returns an error.
	wait(deadline time.Time) (bool, error)
	close()
}

// PollEvents makes the library read the state at intervals for events and the end of faults,
// instead of waiting for the kernel. It is for programs with their own clock, and is called
// before the library is used.
func (s *Sim) PollEvents(every time.Duration) { s.every = every }

func (s *Sim) newWatch() (watch, error) {
	if s.every > 0 {
		return &poll{every: s.every, closed: make(chan struct{})}, nil
	}
	return newInotify(s.dir)
}

// poll is a watch that takes each interval for a change.
type poll struct {
	every  time.Duration
	closed chan struct{}
}

func (p *poll) wait(deadline time.Time) (bool, error) {
	next := p.every
	if !deadline.IsZero() {
		next = min(next, time.Until(deadline))
	}
	if next <= 0 {
		return false, nil
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-p.closed:
		return false, os.ErrClosed
	}
}

func (p *poll) close() { close(p.closed) }

// inotify is a watch by the kernel. It does not miss a change between its creation and a wait.
type inotify struct{ file *os.File }

func newInotify(dir string) (*inotify, error) {
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
	return &inotify{file: file}, nil
}

func (w *inotify) wait(deadline time.Time) (bool, error) {
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

func (w *inotify) close() { _ = w.file.Close() }

// bell is a watch for many waiters, such as the event sets of a process. The kernel
// limits the watches of a user to about a hundred.
type bell struct {
	open func() (watch, error)

	mu    sync.Mutex
	users int
	watch watch
	rung  chan struct{} // closed with the next change
}

// join keeps the bell going until leave.
func (b *bell) join() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == 0 {
		w, err := b.open()
		if err != nil {
			return err
		}
		b.watch, b.rung = w, make(chan struct{})
		go b.ring(w)
	}
	b.users++
	return nil
}

func (b *bell) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.watch.close()
	}
}

// next returns a channel that is closed with the next change.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

// ring wakes the waiters for each change until the watch is closed.
func (b *bell) ring(w watch) {
	for {
		if _, err := w.wait(time.Time{}); err != nil {
			return
		}
		b.mu.Lock()
		if b.watch == w {
			close(b.rung)
			b.rung = make(chan struct{})
		}
		b.mu.Unlock()
	}
}

// waitUntil blocks until done says so of the state, or the deadline has
// passed.
func (s *Sim) waitUntil(deadline time.Time, done func(*State) bool) error {
	w, err := s.newWatch()
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
