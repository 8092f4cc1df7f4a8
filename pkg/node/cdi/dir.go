// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// Dir watches whether the directory of CDI specs is replaced by another one.
type Dir struct {
	path string

	mu   sync.Mutex
	seen fs.FileInfo // nil before the first check
}

// NewDir returns the directory at a path.
func NewDir(path string) *Dir { return &Dir{path: path} }

// Check creates the directory if it is missing. It reports whether the directory is not
// the one of the last check: then its specs are lost and must be written again. It
// returns an error if the directory cannot be created, such as one that was removed on
// the host while it was mounted here.
func (d *Dir) Check() (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(d.path, dirMode); err != nil {
			return false, fmt.Errorf("make the CDI directory again: %w", err)
		}
		info, err = os.Stat(d.path)
	}
	if err != nil {
		return false, fmt.Errorf("CDI directory: %w", err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink == 0 {
		return false, fmt.Errorf("the CDI directory %s was removed on the node, restart the agent", d.path)
	}
	changed = d.seen != nil && !os.SameFile(d.seen, info)
	d.seen = info
	return changed, nil
}
