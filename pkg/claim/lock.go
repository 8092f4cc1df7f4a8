package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// pollInterval is the time between attempts at a lock that another process
// holds, which happens during a rolling update only: within a process waiting
// takes no polling.
const pollInterval = 5 * time.Millisecond

func claimLock(claim types.UID) string { return "claim-" + string(claim) }

// gpusOf names the locks of all GPUs of the records, any of which may be nil.
func gpusOf(records ...*record) []string {
	var names []string
	for _, r := range records {
		if r == nil {
			continue
		}
		for _, d := range r.Devices {
			if name, err := gpu.ParseDeviceName(d.Device); err == nil {
				names = append(names, name.Address.DeviceName())
			}
		}
	}
	return names
}

// locks are named locks that exclude goroutines and, by way of lock files in a
// directory, processes. A lock of a claim is taken before those of GPUs, and
// those of GPUs in one order, so nobody waits in a circle.
type locks struct {
	dir string

	mu     sync.Mutex
	queues map[string]*queue
}

// queue is where the goroutines of this process wait for one lock.
type queue struct {
	turn  chan struct{} // holds one item while somebody has the lock
	users int           // that have the lock or wait for it
}

func newLocks(dir string) *locks { return &locks{dir: dir, queues: make(map[string]*queue)} }

// lock waits for all the names and returns what unlocks them. The error wraps
// [gpu.ErrTimeout] if ctx ended first.
func (l *locks) lock(ctx context.Context, names ...string) (unlock func(), err error) {
	slices.Sort(names)
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	for _, name := range slices.Compact(names) {
		release, err := l.one(ctx, name)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("wait for whoever is working on %s: %w", name, err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// try takes one lock if nobody has it.
func (l *locks) try(ctx context.Context, name string) (unlock func(), ok bool, err error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	unlock, err = l.one(now, name)
	if errors.Is(err, gpu.ErrTimeout) {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

// one takes one lock. If ctx has ended it still takes a lock that is free.
func (l *locks) one(ctx context.Context, name string) (func(), error) {
	leave, err := l.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(l.dir, name)
	f, err := lockFile(ctx, path)
	if err != nil {
		leave()
		return nil, err
	}
	return func() {
		// The name goes before the lock does, so whoever waits for this file
		// finds that it is not the one of that name any more. A file that
		// cannot be removed does no harm, nor does one that a crash leaves.
		_ = os.Remove(path)
		_ = f.Close()
		leave()
	}, nil
}

// enter waits for the turn among the goroutines of this process.
func (l *locks) enter(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	q := l.queues[name]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		l.queues[name] = q
	}
	q.users++
	l.mu.Unlock()

	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(l.queues, name)
		}
	}
	select {
	case q.turn <- struct{}{}:
	default:
		select {
		case q.turn <- struct{}{}:
		case <-ctx.Done():
			forget()
			return nil, fmt.Errorf("%w: %w", gpu.ErrTimeout, context.Cause(ctx))
		}
	}
	return func() { <-q.turn; forget() }, nil
}

// lockFile waits for the lock of the file, which is created if it is missing.
// Closing the file, also by the end of the process, gives the lock back.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isFileAt(f, path) {
			return f, nil
		}
		_ = f.Close() // nothing was written
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another process has it: %w", gpu.ErrTimeout, context.Cause(ctx))
		}
	}
}

// isFileAt reports whether the open file is the one that path names now.
func isFileAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}
