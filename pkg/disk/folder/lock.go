// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pollInterval is the time between two attempts to lock a folder that another
	// process owns. Owners only remove a few files, which is fast.
	pollInterval = 5 * time.Millisecond
	// lostRaces is the number of lost races after which the attempt fails. In a race
	// another process removes the folder between its creation and its lock.
	lostRaces = 200
)

// Lock is a lock of a folder. It ends with [Lock.Close] or with the process.
//
// The lock (flock) is on the folder itself. A lock file would have to be removed
// before the folder, and the folder would exist without it for a moment. If another
// process removes and creates the folder, the path names a different inode; each
// lock therefore checks afterwards that its folder is still the one at the path, and
// is retried if not.
type Lock struct {
	path string
	file *os.File
}

var (
	errTaken    = errors.New("another process has it")
	errReplaced = errors.New("it was removed meanwhile")
)

// Share locks a folder that any number of processes may share. It creates the folder
// and its parents if they are missing, and waits while another process owns the
// folder. Processes must remove the folder only while they own it, so it exists until
// the lock ends.
func Share(ctx context.Context, path string, mode fs.FileMode) (*Lock, error) {
	lost := 0
	for {
		l, err := take(path, mode, unix.LOCK_SH)
		if errors.Is(err, errReplaced) {
			lost++
		}
		if err == nil || !errors.Is(err, errTaken) && !errors.Is(err, errReplaced) || lost == lostRaces {
			return l, err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// Own locks a folder exclusively. It creates the folder and its parents if they are
// missing. It does not wait: ok is false if another process has locked the folder.
func Own(path string, mode fs.FileMode) (l *Lock, ok bool, err error) {
	for range lostRaces {
		l, err = take(path, mode, unix.LOCK_EX)
		if errors.Is(err, errTaken) {
			return nil, false, nil
		}
		if !errors.Is(err, errReplaced) {
			break
		}
	}
	return l, err == nil, err
}

// Own makes the lock exclusive. ok is false if another process shares the folder or
// the folder is not the one at its path any more. Then the lock protects nothing, and
// the caller must close it: another process may own the folder.
func (l *Lock) Own() (ok bool, err error) {
	if ok, err := l.flock(unix.LOCK_EX); err != nil || !ok {
		return false, err
	}
	// The kernel releases the shared lock before it takes the exclusive one.
	return l.isCurrent()
}

// Close releases the lock.
func (l *Lock) Close() error { return l.file.Close() }

// take creates, opens and locks the folder. The error wraps errTaken or errReplaced
// if another attempt may succeed.
func take(path string, mode fs.FileMode, how int) (*Lock, error) {
	l, err := open(path, mode)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		// Another process has removed the folder or one of its parents.
		// os.MkdirAll returns ErrExist if the folder existed at its mkdir and not at
		// the stat that follows.
		return nil, fmt.Errorf("%w: %w", errReplaced, err)
	}
	if err != nil {
		return nil, err
	}
	if err := l.lock(how); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func open(path string, mode fs.FileMode) (*Lock, error) {
	if err := os.MkdirAll(path, mode); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Lock{path: path, file: file}, nil
}

// lock locks the open folder. It returns errReplaced if the folder is not the one at
// its path any more.
func (l *Lock) lock(how int) error {
	ok, err := l.flock(how)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("lock folder %s: %w", l.path, errTaken)
	}
	if ok, err = l.isCurrent(); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("lock folder %s: %w", l.path, errReplaced)
	}
	return nil
}

// flock locks without waiting. ok is false if another process has the lock.
func (l *Lock) flock(how int) (ok bool, err error) {
	for {
		err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case err != nil:
			return false, &fs.PathError{Op: "lock folder", Path: l.path, Err: err}
		default:
			return true, nil
		}
	}
}

// Check returns an error if the folder is not the one at its path any more.
func (l *Lock) Check() error {
	ok, err := l.isCurrent()
	if err != nil {
		return fmt.Errorf("folder %s: %w", l.path, err)
	}
	if !ok {
		return fmt.Errorf("folder %s: %w", l.path, errReplaced)
	}
	return nil
}

// isCurrent reports whether the folder is still the one at its path.
func (l *Lock) isCurrent() (bool, error) {
	own, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, there), err
}
