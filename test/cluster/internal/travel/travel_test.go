// SPDX-License-Identifier: Apache-2.0

package travel

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestAPackedProgramRunsWithoutThisMachinesLibraries(t *testing.T) {
	dir := t.TempDir()
	program, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	if err := Pack(program, dir, "OF_THE_PACK=$d/lib"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "bin", "ls"), dir).CombinedOutput()
	if err != nil || string(out) != "bin\nlib\nlibexec\n" {
		t.Errorf("%v: %s", err, out)
	}
	// Without its loader in the pack it does not run.
	if err := os.RemoveAll(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(dir, "bin", "ls"), dir).CombinedOutput(); err == nil {
		t.Errorf("it ran with the libraries of the machine: %s", out)
	}
}

func TestAScriptNeedsNoLibraries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	if loader, libraries, err := Libraries(path); loader != "" || libraries != nil || err != nil {
		t.Errorf("got %q, %q, %v", loader, libraries, err)
	}
}
