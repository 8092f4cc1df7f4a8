// SPDX-License-Identifier: Apache-2.0

package closure

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// compile compiles a C source and returns the path of the result.
func compile(t *testing.T, source, out string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "source.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-o", out, file}, flags...)
	if text, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, text)
	}
	return out
}

func read(t *testing.T, file string) Program {
	t.Helper()
	p, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAStaticProgramHasNoInterpreter(t *testing.T) {
	dir := t.TempDir()
	const source = "int main(void) { return 0; }"
	if p := read(t, compile(t, source, dir+"/static", "-static")); p.Interpreter != "" || !p.IsStatic() {
		t.Errorf("static: interpreter %q, static %v", p.Interpreter, p.IsStatic())
	}
	if p := read(t, compile(t, source, dir+"/dynamic")); !strings.Contains(p.Interpreter, "/ld-linux") || p.IsStatic() {
		t.Errorf("dynamic: interpreter %q, static %v", p.Interpreter, p.IsStatic())
	}
	if p := read(t, compile(t, source, dir+"/library", "-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libc.so.6")); p.Interpreter != "" || p.IsStatic() {
		t.Errorf("library: interpreter %q, static %v", p.Interpreter, p.IsStatic())
	}
}

func TestLibrariesAreFoundAllTheWayDown(t *testing.T) {
	dir := t.TempDir()
	compile(t, "int lower(void) { return 0; }", dir+"/liblower.so.1", "-shared", "-fPIC", "-Wl,-soname,liblower.so.1")
	compile(t, "int lower(void); int upper(void) { return lower(); }", dir+"/libupper.so.1", "-shared", "-fPIC", "-Wl,-soname,libupper.so.1", dir+"/liblower.so.1")
	compile(t, "int opened(void) { return 0; }", dir+"/libopened.so", "-shared", "-fPIC")
	p := read(t, compile(t, "int upper(void); int main(void) { return upper(); }", dir+"/program", dir+"/libupper.so.1", "-Wl,-rpath-link,"+dir))

	got, err := p.Libraries(append([]string{dir}, p.Directories()...), "libopened.so")
	if err != nil {
		t.Fatal(err)
	}
	loader := filepath.Base(p.Interpreter)
	if diff := cmp.Diff([]string{loader, "libc.so.6", "liblower.so.1", "libopened.so", "libupper.so.1"}, Names(got)); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}
	if got["liblower.so.1"] != dir+"/liblower.so.1" {
		t.Errorf("liblower is %s", got["liblower.so.1"])
	}
	// The system's own loader agrees.
	list := exec.CommandContext(t.Context(), p.Interpreter, "--list", dir+"/program")
	list.Env = []string{"LD_LIBRARY_PATH=" + dir}
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range got {
		if name != "libopened.so" && name != loader && !strings.Contains(string(text), name+" => "+file+" ") {
			t.Errorf("%s is %s; the loader says:\n%s", name, file, text)
		}
	}
}

func TestErrorOfAMissingLibraryNamesTheSearchedPaths(t *testing.T) {
	p := read(t, compile(t, "int main(void) { return 0; }", t.TempDir()+"/program"))
	_, err := p.Libraries([]string{"/nowhere"})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "libc.so.6") || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("error %v", err)
	}
}

func TestTheErrorNamesAFileThatIsNotAProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
}
