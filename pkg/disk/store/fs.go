// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
)

// FS holds the operations of a store that change the file system. Tests replace it
// with one that fails.
type FS interface {
	// WriteNew creates or truncates path with mode 0600 and writes data.
	WriteNew(path string, data []byte) error
	// Rename replaces to atomically: a process that opens it gets the old file or
	// the new one.
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes earlier renames and removals in the directory durable, if the
	// file system is synced.
	SyncDir(path string) error
}

// mode is the mode of records.
const mode = 0o600

// Disk is the real file system, for records that outlive the machine's boot.
type Disk struct{ files }

// WriteNew implements [FS]. It returns once the data is on the disk.
func (Disk) WriteNew(path string, data []byte) error {
	f, err := file.Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	// Some file systems report a full disk no earlier than at close.
	return errors.Join(err, f.Close())
}

// Rename implements [FS].
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// SyncDir implements [FS]. It returns once the names in the directory are on the
// disk.
func (Disk) SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Unsynced is the real file system, for records that are not valid after the
// machine's boot. They outlive the process as soon as they are written, and the
// kernel writes them to the disk later. Waiting for the disk would take most of the
// time of preparing a claim.
type Unsynced struct{ files }

// WriteNew implements [FS].
func (Unsynced) WriteNew(path string, data []byte) error { return file.Write(path, data, mode) }

// Rename implements [FS]. If both files exist, it swaps them and removes the old one.
// A plain rename over a file makes ext4 write the new file to the disk at once (mount
// option auto_da_alloc), and removing it soon afterwards waits for that.
func (Unsynced) Rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		// The record is replaced. If this fails, the temporary file stays, as
		// after a crash.
		_ = file.Remove(from)
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		// Not [os.Rename], which reads the status of the target before.
		if err = unix.Rename(from, to); err == nil {
			return nil
		}
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}

// SyncDir implements [FS].
func (Unsynced) SyncDir(string) error { return nil }

// files holds the operation that is the same in both.
type files struct{}

// Remove implements [FS].
func (files) Remove(path string) error { return file.Remove(path) }
