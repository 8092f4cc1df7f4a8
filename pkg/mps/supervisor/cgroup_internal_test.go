// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyACgroupOfOursIsRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		theirs bool // there before
		inUse  bool
		stays  bool
	}{
		"one that was made":               {},
		"an administrator's":              {theirs: true, stays: true},
		"one in which something still is": {inUse: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := &Options{RunDir: dir, Cgroup: filepath.Join(dir, "gpu-mps")}
			if tc.theirs {
				must(t, os.Mkdir(o.Cgroup, 0o755))
			}
			// For one daemon and the next.
			for range 2 {
				cgroup, err := o.openCgroup()
				must(t, err)
				if err := cgroup.Close(); err != nil {
					t.Error(err)
				}
			}
			if tc.inUse {
				must(t, os.Mkdir(filepath.Join(o.Cgroup, "inner"), 0o755))
			}
			if err := errors.Join(o.removeCgroup(), o.removeCgroup()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(o.Cgroup); errors.Is(err, fs.ErrNotExist) == tc.stays {
				t.Errorf("it stays: %v, want %v", !tc.stays, tc.stays)
			}
			if _, err := os.Stat(o.cgroupNote()); errors.Is(err, fs.ErrNotExist) == tc.inUse {
				t.Errorf("the note of it is gone: %v, want %v", !tc.inUse, tc.inUse)
			}
		})
	}
}
