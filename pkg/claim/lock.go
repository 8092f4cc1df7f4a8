// SPDX-License-Identifier: Apache-2.0

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

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// pollInterval is the time between attempts at a lock that another process
// holds, which happens during a rolling update only: within a process waiting
// takes no polling.
const pollInterval = 5 * time.Millisecond

func claimLock(claim types.UID) string { return "claim-" + string(claim) }

// deviceLock is held for all work on one device, however long that takes: the
// start of its MPS daemon above all.
func deviceLock(device string) string { return "device " + device }

// gpuWideLock is held for work on a GPU that concerns its other devices too, see
// [gpuWide].
func gpuWideLock(address gpu.PCIAddress) string { return "all of " + address.DeviceName() }

// updateLock is held shared for any work on a GPU. It excludes agents up to
// release 0.1, which know no locks of devices and hold this one exclusively, for
// the time of a rolling update.
func updateLock(address gpu.PCIAddress) string { return address.DeviceName() }

// on is what a claim's work is about.
type on struct {
	devices []string
	gpus    []gpu.PCIAddress
}

// onDevicesOf returns what work on the devices of these records, any of which may
// be nil, is about.
func onDevicesOf(records ...*journal.Record) on {
	var o on
	for _, r := range records {
		if r == nil {
			continue
		}
		for _, d := range r.Devices {
			if name, err := kind.Parse(d.Name); err == nil && name.OnGPU() {
				o.devices, o.gpus = append(o.devices, d.Name), append(o.gpus, name.Address)
			}
		}
	}
	return o
}

// lockDevices waits for the devices and returns what unlocks them. The caller
// holds no lock but that of a claim.
func (l *locks) lockDevices(ctx context.Context, o on) (unlock func(), err error) {
	updated, err := l.share(ctx, names(o.gpus, updateLock)...)
	if err != nil {
		return nil, err
	}
	devices, err := l.lock(ctx, names(o.devices, deviceLock)...)
	if err != nil {
		updated()
		return nil, err
	}
	return func() { devices(); updated() }, nil
}

func names[T any](of []T, name func(T) string) []string {
	all := make([]string, len(of))
	for i, one := range of {
		all[i] = name(one)
	}
	return all
}

// tryDevice takes the lock of a device if it is free.
func (l *locks) tryDevice(ctx context.Context, name kind.Name) (unlock func(), ok bool, err error) {
	return l.tryOn(ctx, name.Address, deviceLock(name.String()))
}

// tryGPU takes the GPU-wide lock of a GPU if it is free.
func (l *locks) tryGPU(ctx context.Context, address gpu.PCIAddress) (unlock func(), ok bool, err error) {
	return l.tryOn(ctx, address, gpuWideLock(address))
}

func (l *locks) tryOn(ctx context.Context, address gpu.PCIAddress, name string) (unlock func(), ok bool, err error) {
	now, cancel := context.WithCancel(ctx)
	cancel()
	updated, err := l.share(now, updateLock(address))
	if errors.Is(err, gpu.ErrTimeout) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	locked, ok, err := l.try(ctx, name)
	if !ok {
		updated()
		return nil, false, err
	}
	return func() { locked(); updated() }, true, nil
}

// gpuWide is the lock of some GPUs for work that concerns all devices on them:
// finding conflicts in the records, the MIG mode, partitions, the time slice. A
// claim that is begun is in its record before the lock is released, and the
// record is deleted before it is released, so that all that this work decides is
// decided by records that no other process changes. Slow work on one device, such
// as the start of its MPS daemon, does without.
type gpuWide struct {
	locks  *locks
	gpus   []gpu.PCIAddress
	unlock func() // nil if the lock is not held
}

// take waits for the lock, and reports whether it was not held before. The caller
// holds the locks of its devices, and takes no other lock before release.
func (w *gpuWide) take(ctx context.Context) (taken bool, err error) {
	if w.unlock != nil {
		return false, nil
	}
	w.unlock, err = w.locks.lock(ctx, names(w.gpus, gpuWideLock)...)
	return err == nil, err
}

// release releases the lock if it is held.
func (w *gpuWide) release() {
	if w.unlock != nil {
		w.unlock()
		w.unlock = nil
	}
}

// locks are named locks that exclude goroutines and, by way of a lock file,
// processes. They are taken in this order, and those of one kind in the order of
// their names, so no two callers wait for each other:
//
//	claim                     exclusive
//	GPU, against older agents shared
//	device                    exclusive
//	GPU-wide                  exclusive, may be released and taken again
//
// A shared lock is never turned into an exclusive one.
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
// [gpu.ErrTimeout] if ctx ended first, and then none of them is locked.
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
			return nil, fmt.Errorf("wait for other work on %s: %w", name, err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// share is lock for shared locks, which exclude exclusive ones only. Each call
// opens the lock file anew, because the kernel knows a lock by the open file: the
// callers need not know of each other, and closing the file unlocks all.
func (l *locks) share(ctx context.Context, names ...string) (unlock func(), err error) {
	// By way of /proc it is the same file even if another one is at its path.
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := lockByte(ctx, file, name, unix.F_RDLCK); err != nil {
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("wait for other work on %s: %w", name, err)
		}
	}
	return func() { _ = file.Close() }, nil // nothing was written
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
	if err := lockByte(ctx, l.file, name, unix.F_WRLCK); err != nil {
		leave()
		return nil, err
	}
	return func() {
		// It cannot fail: the file is open and the byte is ours.
		_ = control(l.file, name, unix.F_UNLCK)
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

// lockByte waits until no other open file has a lock of the name that excludes
// this one.
func lockByte(ctx context.Context, file *os.File, name string, lockType int16) error {
	for {
		err := control(file, name, lockType)
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
func control(file *os.File, name string, lockType int16) error {
	at := placeOf(name)
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: lockType, Start: at, Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// placeOf returns the place of a name's byte in the lock file.
func placeOf(name string) int64 {
	hash := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(hash[:]) >> 2) // offsets are positive, their sums too
}
