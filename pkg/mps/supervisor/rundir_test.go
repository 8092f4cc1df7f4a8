// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
)

func TestARunDirectoryThatServersCannotReachIsRefused(t *testing.T) {
	top := t.TempDir()
	// The folder of all this test's folders is its user's only.
	must(t, os.Chmod(filepath.Dir(top), 0o755))
	for dir, mode := range map[string]fs.FileMode{"open": 0o711, "open/run": 0o700, "closed": 0o710, "closed/inner": 0o755} {
		path := filepath.Join(top, dir)
		must(t, errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)))
	}
	for link, target := range map[string]string{"open/to-closed": "../closed/inner", "closed/to-open": "../open"} {
		must(t, os.Symlink(target, filepath.Join(top, link)))
	}
	for dir, refused := range map[string]bool{
		"open/new":             false,
		"open/run":             false, // its own mode is the supervisor's to set
		"open/missing/new":     false,
		"closed/new":           true,
		"closed/inner/new":     true,
		"closed/missing/new":   true,
		"open/to-closed/new":   true,
		"closed/to-open/new":   true,
		"closed/to-open/a/new": true,
	} {
		err := supervisor.Options{RunDir: filepath.Join(top, dir)}.CheckRunDir()
		if !refused && err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if refused && (!errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "chmod o+x "+filepath.Join(top, "closed")+",")) {
			t.Errorf("%s: error %v, want one that is ErrInvalid and says what to do with the folder", dir, err)
		}
	}
}
