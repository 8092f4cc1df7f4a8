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

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
)

// Empty reports whether the store has no record, readable or not, and its quarantine
// is empty.
func (s *Store) Empty() (bool, error) {
	for dir, isRecord := range map[string]func(name string) bool{
		s.dir:                               func(name string) bool { return strings.HasSuffix(name, recordSuffix) },
		filepath.Join(s.dir, quarantineDir): func(string) bool { return true },
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("list records: %w", err)
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isRecord(e.Name()) }) {
			return false, nil
		}
	}
	return true, nil
}

// Remove removes the directory of an empty store and the temporary files of crashed
// writes. No process may use the store any more. If the directory contains other
// files, Remove leaves them and the directory.
func (s *Store) Remove() error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), tmpSuffix); ok && file.IsName(key) && e.Type().IsRegular() {
			errs = append(errs, s.fs.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	errs = append(errs, folder.Remove(filepath.Join(s.dir, quarantineDir)), folder.Remove(s.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove store: %w", err)
	}
	return nil
}
