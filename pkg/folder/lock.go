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
	// pollInterval is the time between two attempts at a folder that somebody
	// has alone, which takes as long as removing a few files.
	pollInterval = 5 * time.Millisecond
	// lostRaces is how often in a row a folder may vanish between being made and
	// being locked. Each time takes somebody who has come and gone.
	lostRaces = 200
)

// Lock is a lock of a folder, which ends with [Lock.Close] or with the process.
//
// The folder itself is what is locked (flock), and no file in it: so there is no
// file to remove last, and no moment at which the folder is there without what
// is to be locked. A folder that has been removed and made anew is another one
// to the kernel. So whoever has locked one looks whether it is still the one at
// its path, and begins anew where it is not.
type Lock struct {
	path string
	file *os.File
}

var (
	errTaken    = errors.New("somebody else has it")
	errReplaced = errors.New("it was removed meanwhile")
)

// Share makes a folder, with its parents, where it is missing, and shares it with
// any number of others. It waits while somebody has the folder alone. Until the
// lock ends, nobody removes the folder who does so only while he has it alone.
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

// Own makes a folder, with its parents, where it is missing, and has it alone. It
// waits for nobody: ok is false where somebody else has the folder.
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

// Own has the folder alone from now on, if nobody else shares it and it is still
// the one at its path. Where ok is false the lock is as good as closed: others
// may have the folder alone.
func (l *Lock) Own() (ok bool, err error) {
	if ok, err := l.flock(unix.LOCK_EX); err != nil || !ok {
		return false, err
	}
	// The kernel gives the shared lock up before it looks for the other one.
	return l.isCurrent()
}

// Close gives the folder up.
func (l *Lock) Close() error { return l.file.Close() }

// take makes, opens and locks the folder. The error wraps errTaken or
// errReplaced where another attempt may succeed.
func take(path string, mode fs.FileMode, how int) (*Lock, error) {
	l, err := open(path, mode)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		// Somebody has removed it again, or a folder above it: os.MkdirAll says
		// that it exists if it was there at its mkdir and gone at its second look.
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

// lock locks the folder that is open, if it is still the one at its path.
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

// flock locks without waiting.
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
