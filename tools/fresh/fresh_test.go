// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// base makes a base system of busybox alone, in place of Debian's.
func base(t *testing.T) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("this needs root and busybox: %v", err)
	}
	dir := t.TempDir()
	for _, folder := range []string{"root/bin", "root/etc", "root/dev", "root/sys", "root/proc", "root/run", "root/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "root/bin/busybox"), string(program))
	write(t, filepath.Join(dir, "root/bin/git"), "#!/bin/sh\n")
	write(t, filepath.Join(dir, "done"), "")
	for _, name := range []string{"sh", "env", "mount", "umount", "rmdir", "grep", "touch", "ls", "cat"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "root/bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestACommandRunsOnAFreshMachine(t *testing.T) {
	clone := t.TempDir()
	write(t, filepath.Join(clone, "file"), "of the clone")
	base := base(t)
	const command = `
cat file && touch made
[ ! -e /usr/bin ] || echo a program of this machine
grep -q " / / .* shared:" /proc/self/mountinfo || grep -q " / rw.* shared:" /proc/self/mountinfo || echo private mounts
[ -z "$LEAKED" ] || echo a variable of this machine
touch /tmp/here && exit 7`
	cmd := exec.CommandContext(t.Context(), "./fresh.sh", clone, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "FRESH_ROOT="+base, "LEAKED=yes")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 7 || string(out) != "of the clone" {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(clone, "made")); err != nil {
		t.Errorf("the command does not run in the clone: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), base) {
		t.Errorf("a mount is left: %v\n%s", err, mounts)
	}
	if left, err := filepath.Glob(base + "-run.*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
