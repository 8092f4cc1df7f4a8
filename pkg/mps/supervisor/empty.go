// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// emptyFolder removes all files in a folder. Containers can write there and nest folders
// without limit. os.RemoveAll opens every folder on its way down and runs out of file
// descriptors or memory; emptyFolder moves nested folders up to the first one instead.
// It follows no links. A container that keeps creating files delays it until ctx ends.
func emptyFolder(ctx context.Context, path string) error {
	top, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	heed := func() error {
		if ctx.Err() == nil {
			return nil
		}
		return fmt.Errorf("empty %s: %w: there are more files than could be removed, or a container goes on making them: end the pods that have it", path, context.Cause(ctx))
	}
	moved := 0
	return eachName(top, heed, func(name string) error {
		if isFolder, err := unlink(top, name); !isFolder {
			return err
		}
		inner, err := openFolder(int(top.Fd()), name)
		if err != nil {
			return err
		}
		defer func() { _ = inner.Close() }()
		err = eachName(inner, heed, func(name string) error {
			if isFolder, err := unlink(inner, name); !isFolder {
				return err
			}
			for {
				if err := heed(); err != nil {
					return err
				}
				moved++
				err := unix.Renameat2(int(inner.Fd()), name, int(top.Fd()), fmt.Sprintf(".%d", moved), unix.RENAME_NOREPLACE)
				if !errors.Is(err, fs.ErrExist) {
					return failed("move", inner, name, err)
				}
			}
		})
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(top.Fd()), name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil // a container has created a file meanwhile: try again
		}
		return failed("remove", top, name, err)
	})
}

func openFolder(parent int, name string) (*os.File, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachName calls heed and then do for every name in a folder, until the folder is
// empty. do removes the name.
func eachName(dir *os.File, heed func() error, do func(name string) error) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := heed(); err != nil {
				return err
			}
			if err := do(name); err != nil {
				return err
			}
		}
	}
}

// unlink removes a file, and reports whether the name is a folder instead.
func unlink(dir *os.File, name string) (isFolder bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	return errors.Is(err, unix.EISDIR), failed("remove", dir, name, err)
}

func failed(operation string, dir *os.File, name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &fs.PathError{Op: operation, Path: dir.Name() + "/" + name, Err: err}
}
