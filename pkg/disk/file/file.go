// SPDX-License-Identifier: Apache-2.0

// Package file opens, reads, writes and removes plain files and files of proc with few
// system calls. Package os offers each file to the runtime's poller first, which polls no
// such file: with an open and a close that is five of eight calls. A claim takes a dozen
// files, and a pass over proc thousands.
//
// Only folders of the agent and of the kernel are meant: an open of a pipe would block a
// thread.
package file

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Open is [os.OpenFile] for a plain file.
func Open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := open(path, flags, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(path string, flags int, mode fs.FileMode) (fd int, err error) {
	fd, err = retried(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, uint32(mode.Perm())) })
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Read is [os.ReadFile] for a plain file or a file of proc.
func Read(path string) ([]byte, error) { return ReadStart(path, math.MaxInt) }

// ReadStart is [Read] for at most the first bytes of a file, as many as most. A file that
// another program writes can have any size.
func ReadStart(path string, most int) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	data := make([]byte, 0, min(512, most))
	for {
		n, err := retried(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		switch {
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) == most {
			return data, nil
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
			data = data[:len(data):min(cap(data), most)]
		}
	}
}

// Write is [os.WriteFile] for a plain file.
func Write(path string, data []byte, mode fs.FileMode) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, mode)
	if err != nil {
		return err
	}
	for len(data) > 0 && err == nil {
		var n int
		n, err = retried(func() (int, error) { return unix.Write(fd, data) })
		data = data[max(n, 0):]
	}
	// Some file systems report a full disk no earlier than at close.
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Remove removes a file. Unlike [os.Remove] it does not try to remove a missing file as a
// folder too, and fails for a folder.
func Remove(path string) error {
	if err := unix.Unlink(path); err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// retried calls do until no signal interrupts it.
func retried(do func() (int, error)) (int, error) {
	for {
		if n, err := do(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
