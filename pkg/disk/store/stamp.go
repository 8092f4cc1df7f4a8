// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"syscall"
)

// Stamp identifies a version of a record without reading it. Two versions can have
// the same stamp only if one replaced the other within one tick of the file system's
// clock, which is up to 10 milliseconds long.
type Stamp struct {
	inode    uint64
	modified int64 // in nanoseconds since 1970
	size     int64
}

// Stamp returns the stamp of the record of key. The error wraps [fs.ErrNotExist] if
// there is no record.
func (s *Store) Stamp(key string) (Stamp, error) {
	path, err := s.path(key)
	if err != nil {
		return Stamp{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, fmt.Errorf("stat record %s: %w", key, err)
	}
	stamp := Stamp{modified: info.ModTime().UnixNano(), size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp.inode = stat.Ino
	}
	return stamp, nil
}
