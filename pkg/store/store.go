// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	recordSuffix  = ".record"
	tmpSuffix     = ".tmp"
	reasonSuffix  = ".reason"
	quarantineDir = "quarantine"

	// staleAfter is the age at which a temporary file is what a crash left and
	// not the write, of milliseconds, that another process is at.
	staleAfter = time.Minute
)

// Store is a directory of records. Its methods may be called from several
// goroutines and, on the same directory, from several processes, as long as no
// two of them write the same key at once.
type Store struct {
	dir string
	fs  FS
}

// Open opens the directory, creates it (mode 0700) where it is missing, and
// removes what crashed writes left in it. The file system is for all later
// changes, and decides how long the records last.
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

// syncNew makes the directory itself as safe as its records will be. Its parents
// may be as new as the directory, and are none of the store's otherwise: one that
// cannot be synced is no reason to fail.
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

// leftByACrash reports whether a file is what a process left that died in a write
// or, where it is an empty record, a machine before the disk had it.
func leftByACrash(file fs.FileInfo) bool {
	switch filepath.Ext(file.Name()) {
	case tmpSuffix:
		return time.Since(file.ModTime()) >= staleAfter
	case recordSuffix:
		return file.Size() == 0 && file.Mode().IsRegular()
	}
	return false
}

var validKey = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,126}[A-Za-z0-9])?$`)

// path is the file of a record; it refuses keys that could name another file.
func (s *Store) path(key string) (string, error) {
	if !validKey.MatchString(key) {
		return "", fmt.Errorf("record key %q: want 1 to 128 letters, digits and inner dashes", key)
	}
	return filepath.Join(s.dir, key+recordSuffix), nil
}

// Read returns the payload last written under key, as it is on the disk now.
// The error wraps [fs.ErrNotExist] where there is none, [ErrCorrupt] or
// [ErrNewer].
func (s *Store) Read(key string) ([]byte, error) {
	path, err := s.path(key)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	payload, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", key, err)
	}
	return payload, nil
}

// Write replaces the record of key and returns once its bytes are safe: from the
// end of this process, and with [Disk] from that of the machine.
// After an error that comes from the disk being full or broken the old record
// is intact, unless only the directory could not be synced: then the new one is
// there, and a crash of the machine may bring back the old one.
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
		// On a full disk a leftover would also take the space that is missing.
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

// Delete removes the record of key, and what a crashed write of it left, as
// safely as Write writes. A record that is not there is no error.
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
		if key, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && validKey.MatchString(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Quarantine moves the record of key aside, with the reason in a file beside
// it. It never overwrites what is in quarantine already.
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
