// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
)

const (
	recordSuffix  = ".record"
	tmpSuffix     = ".tmp"
	reasonSuffix  = ".reason"
	quarantineDir = "quarantine"

	// staleAfter is the age at which a temporary file counts as left by a crash. A
	// write by another process takes milliseconds.
	staleAfter = time.Minute
)

// Store is a directory of records. Its methods may be called from several
// goroutines and processes, if only one of them writes a key at a time.
type Store struct {
	dir string
	fs  FS
}

// Open opens the directory and removes the files that crashed writes left in it. It
// creates the directory (mode 0700) if it is missing. fsys makes all later changes,
// and decides whether records survive a power failure.
func Open(dir string, fsys FS) (*Store, error) {
	s := &Store{dir: dir, fs: fsys}
	if err := os.MkdirAll(filepath.Join(dir, quarantineDir), 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := s.syncNew(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !leftByACrash(info) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open store: clean up after a crash: %w", err)
		}
	}
	return s, nil
}

// syncNew makes the directory itself as durable as its records. It also syncs the
// parents, which may be new too, but ignores errors there, because they do not belong
// to the store.
func (s *Store) syncNew() error {
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	for dir := s.dir; dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		_ = s.fs.SyncDir(dir)
	}
	return nil
}

// leftByACrash reports whether a file is left by a crash: the temporary file of a
// process, or an empty record whose content the machine had not written to the disk.
func leftByACrash(file fs.FileInfo) bool {
	switch filepath.Ext(file.Name()) {
	case tmpSuffix:
		return time.Since(file.ModTime()) >= staleAfter
	case recordSuffix:
		return file.Size() == 0 && file.Mode().IsRegular()
	}
	return false
}

// path returns the file of a record. It returns an error for keys that could name
// another file.
func (s *Store) path(key string) (string, error) {
	if !file.IsName(key) {
		return "", fmt.Errorf("record key %q: want %s", key, file.NameForm)
	}
	return filepath.Join(s.dir, key+recordSuffix), nil
}

// Read returns the payload of the record of key from the disk. The error wraps
// [fs.ErrNotExist] if there is no record, [ErrCorrupt] or [ErrNewer].
func (s *Store) Read(key string) ([]byte, error) {
	path, err := s.path(key)
	if err != nil {
		return nil, err
	}
	data, err := file.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	payload, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	return payload, nil
}

// Write replaces the record of key. When it returns, the record survives the end of
// this process, and with [Disk] also a crash of the machine. If the disk is full or
// broken, the old record is intact. If only the sync of the directory fails, the new
// record is in place, and a crash of the machine may restore the old one.
func (s *Store) Write(key string, payload []byte) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, key+tmpSuffix)
	err = s.fs.WriteNew(tmp, encode(payload))
	if err == nil {
		err = s.fs.Rename(tmp, path)
	}
	if err != nil {
		// On a full disk the temporary file would take the space that is missing.
		if rmErr := s.fs.Remove(tmp); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
		return fmt.Errorf("write record %s: %w", key, err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("write record %s: %w", key, err)
	}
	return nil
}

// Delete removes the record of key and the temporary file of a crashed write. The
// removal is as durable as a Write. Delete succeeds if there is no record.
func (s *Store) Delete(key string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	for _, path := range []string{path, filepath.Join(s.dir, key+tmpSuffix)} {
		if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete record %s: %w", key, err)
		}
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("delete record %s: %w", key, err)
	}
	return nil
}

// Keys lists the keys of all records, readable or not, in ascending order.
func (s *Store) Keys() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var keys []string
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && file.IsName(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Quarantine moves the record of key into the quarantine directory, with the reason
// in a second file. It never overwrites a file there.
func (s *Store) Quarantine(key, reason string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	aside := filepath.Join(s.dir, quarantineDir, key+recordSuffix)
	for n := 1; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fmt.Errorf("quarantine record %s: %w", key, err)
		}
		aside = filepath.Join(s.dir, quarantineDir, fmt.Sprintf("%s%s.%d", key, recordSuffix, n))
	}
	err = s.fs.Rename(path, aside)
	if err == nil {
		err = s.fs.WriteNew(aside+reasonSuffix, []byte(reason+"\n"))
	}
	if err == nil {
		err = errors.Join(s.fs.SyncDir(filepath.Dir(aside)), s.fs.SyncDir(s.dir))
	}
	if err != nil {
		return fmt.Errorf("quarantine record %s: %w", key, err)
	}
	return nil
}
