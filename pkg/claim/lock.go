package claim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
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
			if name, err := gpu.ParseDeviceName(d.Device); err == nil && name.Kind != gpu.KindMonitor {
				names = append(names, name.Address.DeviceName())
			}
		}
	}
	return names
}

// locks are named locks that exclude goroutines and, by way of a lock file,
// processes. A lock of a claim is taken before those of GPUs, and those of GPUs
// in one order, so nobody waits in a circle.
//
// Each name has a byte of the file, at the place that its hash says. Locking
// bytes takes microseconds, where a file per name would have to be created and
// removed. What a process has locked is free when the process ends.
type locks struct {
	file *os.File

	mu     sync.Mutex
	queues map[string]*queue
}

// queue is where the goroutines of this process wait for one lock.
type queue struct {
	turn  chan struct{} // holds one item while somebody has the lock
	users int           // that have the lock or wait for it
}

func newLocks(path string) (*locks, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &locks{file: f, queues: make(map[string]*queue)}, nil
}

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
	if err := l.lockByte(ctx, name); err != nil {
		leave()
		return nil, err
	}
	return func() {
		// It cannot fail: the file is open and the byte is ours.
		_ = l.control(name, unix.F_UNLCK)
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

// lockByte waits until no other process has the lock.
func (l *locks) lockByte(ctx context.Context, name string) error {
	for {
		err := l.control(name, unix.F_WRLCK)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: another process has it: %w", gpu.ErrTimeout, context.Cause(ctx))
		}
	}
}

// control locks or unlocks the byte of a name. The lock belongs to the open
// file and so to this process, whichever thread asks.
func (l *locks) control(name string, lockType int16) error {
	hash := sha256.Sum256([]byte(name))
	at := int64(binary.BigEndian.Uint64(hash[:]) >> 2) // offsets are positive, their sums too
	for {
		err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: lockType, Start: at, Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
