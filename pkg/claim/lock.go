// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
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
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// pollInterval is the time between attempts to take a lock that another process
// holds. That happens only during a rolling update: goroutines of one process wait
// for each other without polling.
const pollInterval = 5 * time.Millisecond

func claimLockName(claim types.UID) string { return "claim-" + string(claim) }

// deviceLockName returns the name of the lock that is held for all work on one device.
// That includes slow work such as the start of its MPS daemon. Seats share their GPU's
// daemon, so they lock the GPU.
func deviceLockName(name kind.Name) string {
	return "device " + cmp.Or(name.MPSDaemon(), name).String()
}

// deviceLockNames returns the names of the locks of the devices that are on a GPU.
func deviceLockNames(devices []kind.Name) []string {
	var locks []string
	for _, name := range devices {
		if name.OnGPU() {
			locks = append(locks, deviceLockName(name))
		}
	}
	return locks
}

// gpuWideLockName returns the name of the lock for work that affects a GPU's other
// devices too. See [gpuWideLock].
func gpuWideLockName(address gpu.PCIAddress) string { return "all of " + address.DeviceName() }

// gpuWideLock is the lock of some GPUs for work that affects all devices on them: finding
// conflicts in the records, and changing the MIG mode, partitions or the time slice.
// A new claim is recorded before the lock is released, and the record of an undone
// claim is deleted before the lock is released. So this work can rely on the records:
// no other process changes them meanwhile. Slow work on one device, such as the start
// of its MPS daemon, runs without this lock.
type gpuWideLock struct {
	locks  *locks
	gpus   []gpu.PCIAddress
	unlock func() // nil if the lock is not held
}

// take waits for the lock, and returns false if it was held already. The caller
// holds the locks of its devices, and takes no other lock before release.
func (w *gpuWideLock) take(ctx context.Context) (taken bool, err error) {
	if w.unlock != nil {
		return false, nil
	}
	names := make([]string, len(w.gpus))
	for i, address := range w.gpus {
		names[i] = gpuWideLockName(address)
	}
	w.unlock, err = w.locks.lock(ctx, names...)
	return err == nil, err
}

// release releases the lock if it is held.
func (w *gpuWideLock) release() {
	if w.unlock != nil {
		w.unlock()
		w.unlock = nil
	}
}

// locks are named locks that exclude goroutines and, through a lock file, processes.
// They are taken in this order, and locks of the same kind in the order of their
// names, so that callers cannot deadlock:
//
//	claim
//	device
//	GPU-wide, which may be released and taken again
//
// Each name locks one byte of the file, at an offset computed from the hash of the
// name. Locking a byte takes microseconds, and no file per name must be created and
// removed. The kernel releases the locks of a process when it ends.
type locks struct {
	file *os.File

	mu     sync.Mutex
	queues map[string]*queue
}

// queue lets the goroutines of this process wait for one lock.
type queue struct {
	holder chan struct{} // contains one item while a goroutine has the lock
	users  int           // goroutines that have the lock or wait for it
}

func newLocks(path string) (*locks, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &locks{file: f, queues: make(map[string]*queue)}, nil
}

// lock waits for the locks of all names and returns a function that unlocks them. If
// ctx ends first, the error wraps [gpu.ErrTimeout] and no lock is held.
func (l *locks) lock(ctx context.Context, names ...string) (unlock func(), err error) {
	slices.Sort(names)
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	for _, name := range slices.Compact(names) {
		release, err := l.lockOne(ctx, name)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("wait for other work on %s: %w", name, err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// tryLock takes one lock if it is free, and returns ok = false if not.
func (l *locks) tryLock(ctx context.Context, name string) (unlock func(), ok bool, err error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	unlock, err = l.lockOne(now, name)
	if errors.Is(err, gpu.ErrTimeout) {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

// lockOne takes one lock. If ctx has ended, it still takes a lock that is free.
func (l *locks) lockOne(ctx context.Context, name string) (func(), error) {
	leave, err := l.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := waitForByteLock(ctx, l.file, name); err != nil {
		leave()
		return nil, err
	}
	return func() {
		// Unlocking cannot fail: the file is open and has the lock.
		_ = setByteLock(l.file, name, unix.F_UNLCK)
		leave()
	}, nil
}

// enter waits until no other goroutine of this process has the lock.
func (l *locks) enter(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	q := l.queues[name]
	if q == nil {
		q = &queue{holder: make(chan struct{}, 1)}
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
	case q.holder <- struct{}{}:
	default:
		select {
		case q.holder <- struct{}{}:
		case <-ctx.Done():
			forget()
			return nil, fmt.Errorf("%w: %w", gpu.ErrTimeout, context.Cause(ctx))
		}
	}
	return func() { <-q.holder; forget() }, nil
}

// waitForByteLock waits until no other open file has a conflicting lock of the name, and
// takes the lock.
func waitForByteLock(ctx context.Context, file *os.File, name string) error {
	for {
		err := setByteLock(file, name, unix.F_WRLCK)
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

// setByteLock locks or unlocks the byte of a name. The lock belongs to the open file,
// not to the calling thread.
func setByteLock(file *os.File, name string, lockType int16) error {
	offset := offsetOf(name)
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: lockType, Start: offset, Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// offsetOf returns the offset of a name's byte in the lock file.
func offsetOf(name string) int64 {
	hash := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(hash[:]) >> 2) // the end of the locked range must not overflow
}
