// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// callLock lets one process at a time call the driver for a GPU. It is a lock on an open file,
// which the child inherits: the lock of a child that hangs in the driver lasts until that child
// has ended, even if this process has not waited for it. So at most one process hangs for each
// GPU, however often the runtime starts containers.
type callLock struct{ *os.File }

// lockCalls waits for the lock until ctx ends. The caller has patience for its call. The error
// wraps [gpu.ErrTimeout]. It comes at once if the call of the holder takes longer than its
// patience.
func lockCalls(ctx context.Context, path string, patience time.Duration) (l callLock, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return l, err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // nothing was written
		}
	}()
	l = callLock{file}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		if late := l.late(); late > 0 {
			return l, fmt.Errorf("%w: the GPU hangs: a call into the driver for another container is %v late; reset the GPU or restart the node", gpu.ErrTimeout, late.Round(time.Second))
		}
		err = l.wait(ctx)
	}
	if err != nil {
		return l, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, l.write(uptime() + patience)
}

// wait waits for the lock. A wait that has not ended with ctx ends with the process.
func (l callLock) wait(ctx context.Context) error {
	locked := make(chan error, 1)
	fd := int(l.Fd())
	go func() { locked <- unix.Flock(fd, unix.LOCK_EX) }()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: calls into the driver for other containers have not ended: %w", gpu.ErrTimeout, context.Cause(ctx))
	}
}

// end releases the lock after the call has ended.
func (l callLock) end() error { return errors.Join(l.Truncate(0), l.Close()) }

// abandon leaves the lock to the child, which may run.
func (l callLock) abandon() error { return l.Close() }

// late returns the time since the call of the holder should have ended. It is 0 or less
// if the call has time left, or has just begun.
func (l callLock) late() time.Duration {
	text, err := io.ReadAll(io.NewSectionReader(l, 0, 32))
	if err != nil {
		return 0
	}
	until, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return uptime() - time.Duration(until)
}

func (l callLock) write(until time.Duration) error {
	if err := l.Truncate(0); err != nil {
		return err
	}
	_, err := l.WriteAt(strconv.AppendInt(nil, int64(until), 10), 0)
	return err
}

// uptime returns the time since the machine started, which all processes share and no clock
// change affects.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
