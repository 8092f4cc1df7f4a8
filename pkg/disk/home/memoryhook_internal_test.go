// SPDX-License-Identifier: Apache-2.0

package home

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// programs writes the files of a version and returns their paths.
func programs(t *testing.T, version string) []string {
	t.Helper()
	var files []string
	for _, name := range []string{"gpu-memory-hook", "gpu-memory-limit", "ld.so", "libc.so.6"} {
		file := filepath.Join(t.TempDir(), name)
		must(t, os.WriteFile(file, []byte(name+" "+version), 0o755)) //nolint:gosec // a program
		files = append(files, file)
	}
	return files
}

// wantVersion reports an error unless a folder has the files of a version.
func wantVersion(t *testing.T, dir, version string) {
	t.Helper()
	for _, name := range []string{"gpu-memory-hook", "gpu-memory-limit", "ld.so", "libc.so.6"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if want := name + " " + version; err != nil || string(got) != want {
			t.Errorf("%s of %s is %q, %v; want %q", name, dir, got, err, want)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder is %v, %v", info, err)
	}
}

func installAll(t *testing.T, parent string, files []string) string {
	t.Helper()
	dir, err := installTogether(parent, files)
	must(t, err)
	return dir
}

// A container that starts during an update gets the loader and the library of one version.
func TestTheFilesOfTheMemoryHookAreReplacedTogether(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "memory-hook")
	first := installAll(t, parent, programs(t, "1"))
	second := installAll(t, parent, programs(t, "2"))
	wantVersion(t, second, "2")
	// CDI specs name the earlier version until they are rewritten.
	wantVersion(t, first, "1")
	for _, version := range []string{"3", "4", "5", "6"} {
		wantVersion(t, installAll(t, parent, programs(t, version)), version)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1+earlierVersions {
		t.Errorf("%v, %v; want %d versions", entries, err, 1+earlierVersions)
	}
}

func TestADamagedMemoryHookIsInstalledAgain(t *testing.T) {
	parent, files := filepath.Join(t.TempDir(), "memory-hook"), programs(t, "1")
	dir := installAll(t, parent, files)
	before, err := os.Stat(dir)
	must(t, err)
	if installAll(t, parent, files) != dir {
		t.Error("the same files are in another folder")
	}
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("a complete version is written again: %v", err)
	}
	for name, damage := range map[string]func(string) error{
		"truncated":      func(file string) error { return os.Truncate(file, 1) },
		"missing":        os.Remove,
		"not executable": func(file string) error { return os.Chmod(file, 0o600) },
	} {
		must(t, damage(filepath.Join(dir, "libc.so.6")))
		installAll(t, parent, files)
		t.Log(name)
		wantVersion(t, dir, "1")
	}
}

// An agent that was killed has left an incomplete folder, or files of an earlier layout.
func TestWhatAKilledAgentHasLeftIsNotUsed(t *testing.T) {
	parent := t.TempDir()
	must(t, os.Mkdir(filepath.Join(parent, "new-123"), 0o700))
	must(t, os.WriteFile(filepath.Join(parent, "libc.so.6"), nil, 0o600))
	wantVersion(t, installAll(t, parent, programs(t, "1")), "1")
	if _, err := os.Stat(filepath.Join(parent, "libc.so.6")); !os.IsNotExist(err) {
		t.Errorf("a file of an earlier layout: %v", err)
	}
}

var must = require.NoError
