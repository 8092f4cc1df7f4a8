// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
)

// Watch lists the records of a store that have changed. Its methods must not be called at
// the same time.
type Watch struct{ folder *folder.Watch }

// Watch returns a watch of the store. It fails if the kernel has no watch left.
func (s *Store) Watch() (*Watch, error) {
	w, err := folder.NewWatch(s.dir)
	if err != nil {
		return nil, fmt.Errorf("watch records: %w", err)
	}
	return &Watch{w}, nil
}

// Changed returns the keys of the records that any process has written or deleted, in
// ascending order. These are all changes since the watch or the last call. After an error
// any record may have changed, and the caller needs a new watch.
func (w *Watch) Changed() ([]string, error) {
	names, err := w.folder.Changed()
	if err != nil {
		return nil, fmt.Errorf("watch records: %w", err)
	}
	var keys []string
	for _, name := range names {
		if key, ok := strings.CutSuffix(name, recordSuffix); ok && file.IsName(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Close ends the watch.
func (w *Watch) Close() error { return w.folder.Close() }
