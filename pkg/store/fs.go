package store

import (
	"errors"
	"os"
)

// FS is what a store asks of the file system to change it. Tests put one that
// fails or dies in the place of the real one.
type FS interface {
	// WriteSync creates or truncates path with mode 0600, writes data and
	// returns once they are on the disk.
	WriteSync(path string, data []byte) error
	// Rename replaces to.
	Rename(from, to string) error
	Remove(path string) error
}

// Disk is the real file system.
type Disk struct{}

// WriteSync implements [FS].
func (Disk) WriteSync(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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

// Remove implements [FS].
func (Disk) Remove(path string) error { return os.Remove(path) }
