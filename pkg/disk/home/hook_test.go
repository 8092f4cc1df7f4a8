// SPDX-License-Identifier: Apache-2.0

package home_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
)

func TestInstallHook(t *testing.T) {
	for name, tc := range map[string]struct {
		// there creates the file at the path of the hook before the test.
		there     func(t *testing.T, file string)
		unchanged bool
	}{
		"where there is none": {there: func(*testing.T, string) {}},
		"in place of another release": {there: func(t *testing.T, file string) {
			writeProgram(t, file, "older", 0o755)
		}},
		"in place of one that a crash of the machine has left empty": {there: func(t *testing.T, file string) {
			writeProgram(t, file, "", 0o755)
		}},
		"in place of one that is not executable": {there: func(t *testing.T, file string) {
			writeProgram(t, file, "hook", 0o600)
		}},
		"in place of a link, whose target stays": {there: func(t *testing.T, file string) {
			target := filepath.Join(t.TempDir(), "target")
			writeProgram(t, target, "hook", 0o755)
			must(t, os.Symlink(target, file))
		}},
		"not again if it is the same": {unchanged: true, there: func(t *testing.T, file string) {
			writeProgram(t, file, "hook", 0o755)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			driver := t.TempDir()
			h := enter(t, driver)
			file := filepath.Join(driver, "agent/nvidia-cdi-hook")
			tc.there(t, file)
			before, _ := os.Lstat(file)

			path, err := h.InstallHook(program(t))
			must(t, err)
			if path != file {
				t.Errorf("the hook is at %s, want %s", path, file)
			}
			after, err := os.Lstat(file)
			must(t, err)
			if after.Mode() != 0o755 {
				t.Errorf("mode %v, want 0755", after.Mode())
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != "hook" {
				t.Errorf("content %q, error %v", got, err)
			}
			if same := os.SameFile(before, after); same != tc.unchanged {
				t.Errorf("the same file as before: %v, want %v", same, tc.unchanged)
			}
			if left, err := filepath.Glob(filepath.Join(driver, "agent/.*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, error %v", left, err)
			}
		})
	}
}

// A container that starts during an update runs the old hook or the new one.
func TestAnOpenHookIsUnchangedDuringAnUpdate(t *testing.T) {
	driver := t.TempDir()
	h := enter(t, driver)
	file := filepath.Join(driver, "agent/nvidia-cdi-hook")
	writeProgram(t, file, "old", 0o755)
	running, err := os.Open(file)
	must(t, err)
	defer running.Close() //nolint:errcheck // only read from
	_, err = h.InstallHook(program(t))
	must(t, err)
	content := make([]byte, 8)
	n, err := running.Read(content)
	if err != nil || string(content[:n]) != "old" {
		t.Errorf("the open hook reads %q, error %v", content[:n], err)
	}
}

func TestAHookThatCannotBeInstalledIsAnErrorThatSaysWhy(t *testing.T) {
	driver := t.TempDir()
	h := enter(t, driver)
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := h.InstallHook(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without a program: error %v, want one that names it", err)
	}
	file := filepath.Join(driver, "agent/nvidia-cdi-hook")
	must(t, os.Mkdir(file, 0o755))
	if _, err := h.InstallHook(program(t)); err == nil || !strings.Contains(err.Error(), file+" is a directory") {
		t.Errorf("in place of a directory: error %v", err)
	}
	// It is not ours, and stays.
	leave(t, h)
	wantLeft(t, driver, "agent/nvidia-cdi-hook/")
}

// program returns the path of a program to install.
func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), home.HookName)
	writeProgram(t, file, "hook", 0o755)
	return file
}

func writeProgram(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(content), mode))
	must(t, os.Chmod(file, mode))
}
