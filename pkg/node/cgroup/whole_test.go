// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A part of the hierarchy has no cgroups of other pods, which would then seem to have ended.
func TestAPartOfAHierarchyIsNotTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  bool
	}{
		"version 1":                {[]string{"cgroup.procs", "release_agent"}, true},
		"a container's, version 1": {[]string{"cgroup.procs"}, false},
		"version 2":                {[]string{"cgroup.procs", "cgroup.controllers"}, true},
		"a container's, version 2": {[]string{"cgroup.procs", "cgroup.controllers", "cgroup.events"}, false},
		"a folder with nothing":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, file := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
			}
			if got := isWhole(folder); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
