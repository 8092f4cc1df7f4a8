// SPDX-License-Identifier: Apache-2.0

package place

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Two pods with one claim write its metadata concurrently, while a starting container
// reads it.
func TestMetadataIsCompleteDuringConcurrentWrites(t *testing.T) {
	const writers, rounds = 4, 200
	dir := t.TempDir()
	path, data := filepath.Join(dir, "metadata.json"), bytes.Repeat([]byte("0123456789abcdef"), 256)
	must(t, WriteMetadata(path, data, 0o644))
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range rounds {
				if err := WriteMetadata(path, data, 0o644); err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
					t.Errorf("read %d bytes, %v, want all %d", len(got), err, len(data))
					return
				}
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files left: %v, %v, want only the metadata", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v, want mode 644", info, err)
	}
}
