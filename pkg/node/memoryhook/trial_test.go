// SPDX-License-Identifier: Apache-2.0

package memoryhook_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
)

// The runtime could start no container with a share.
func TestTheHostMustBeAbleToRunTheHook(t *testing.T) {
	shell, err := exec.LookPath("sh")
	must(t, err)
	for name, c := range map[string]struct {
		script string
		mode   os.FileMode
		noexec bool
		want   string // of the error; empty for none
	}{
		"it runs":                          {script: `[ "$1" = --check ]`, mode: 0o755},
		"it fails":                         {script: "echo no loader >&2; exit 1", mode: 0o755, want: "no loader"},
		"it is not a program":              {script: "exit 0", mode: 0o600, want: "permission denied"},
		"its file system runs no programs": {script: "exit 0", mode: 0o755, noexec: true, want: "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.noexec {
				if err := unix.Mount("test", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
					t.Skipf("mounting needs root: %v", err)
				}
				t.Cleanup(func() {
					if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
						t.Error(err)
					}
				})
			}
			hook := filepath.Join(dir, "hook")
			must(t, os.WriteFile(hook, []byte("#!"+shell+"\n"+c.script+"\n"), 0o600))
			must(t, os.Chmod(hook, c.mode))
			err := memoryhook.Installed{Hook: hook, Call: []string{"/bin/true"}}.Try(t.Context(), "")
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the host does not run "+hook)) {
				t.Errorf("%v; want one with %q", err, c.want)
			}
		})
	}
	if err := (memoryhook.Installed{Hook: shell, Call: []string{"/bin/true"}}).Try(t.Context(), t.TempDir()); err == nil {
		t.Error("a program that the host's file system lacks is found")
	}
}
