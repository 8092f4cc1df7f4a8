// SPDX-License-Identifier: Apache-2.0

package folder_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
)

func TestOnlyAnEmptyFolderIsRemoved(t *testing.T) {
	dir := t.TempDir()
	empty, full, link, file := filepath.Join(dir, "empty"), filepath.Join(dir, "full"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	for _, path := range []string{empty, full, filepath.Join(full, "inner")} {
		must(t, os.Mkdir(path, 0o750))
	}
	must(t, errors.Join(os.Symlink(empty, link), os.WriteFile(file, nil, 0o600)))
	// The last one is not there the second time.
	for _, path := range []string{full, link, file, empty, empty} {
		if err := folder.Remove(path); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
	}
	for path, there := range map[string]bool{empty: false, full: true, link: true, file: true} {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) == there {
			t.Errorf("%s is there: %v, want %v", path, !there, there)
		}
	}
}

func TestAFolderThatCannotBeRemovedIsAnErrorThatNamesIt(t *testing.T) {
	var failed *fs.PathError
	if err := folder.Remove("/proc/self/fd/."); !errors.As(err, &failed) || failed.Path != "/proc/self/fd/." {
		t.Errorf("error %v, want one that names the folder", err)
	}
}
