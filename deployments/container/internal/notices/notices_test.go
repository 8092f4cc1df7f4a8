// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func roots(t *testing.T) Roots {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	return Roots{Go: lines[0], Modules: lines[1]}
}

const own = "github.com/gpu-dra/gpu-dra-driver"

// program is one with modules: that of the images.
func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return file
}

func TestTheTermsOfEveryLinkedModuleAreThere(t *testing.T) {
	files, err := roots(t).Files(program(t), own, "doc")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name := range files {
		// The version follows go.mod.
		module, _, _ := strings.Cut(path.Dir(name), "@")
		got[module+"/"+path.Base(name)] = "there"
	}
	if got["doc/"+own+"/deployments/container/LICENSE"] != "" {
		t.Error("the program's own module is in the list of modules that it uses")
	}
	for _, want := range []string{"doc/go/LICENSE", "doc/github.com/google/go-containerregistry/LICENSE", "doc/github.com/spf13/cobra/LICENSE.txt", "doc/golang.org/x/mod/PATENTS"} {
		if got[want] == "" {
			t.Errorf("%s is missing from:\n%s", want, cmp.Diff(nil, got))
		}
	}
}

func TestAModuleWithoutTermsIsAnError(t *testing.T) {
	r := roots(t)
	r.Go = t.TempDir()
	if _, err := r.Files(program(t), own, "doc"); err == nil || !strings.Contains(err.Error(), "terms of module stdlib") {
		t.Errorf("error %v", err)
	}
}

// A bill of materials without the licence of a module is useless to its reader.
func TestTheLicenceOfEveryLinkedModuleIsKnown(t *testing.T) {
	modules, err := roots(t).Linked(program(t), own)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range modules {
		if got[m.Path], err = m.Licence(); err != nil {
			t.Error(err)
		}
		if m.Version == "" || m.Sum == "" && m.Path != GoPath {
			t.Errorf("%s has version %q and checksum %q", m.Path, m.Version, m.Sum)
		}
	}
	for path, want := range map[string]string{
		GoPath: "BSD-3-Clause", "github.com/google/go-containerregistry": "Apache-2.0", "github.com/klauspost/compress": "Apache-2.0 AND BSD-3-Clause AND MIT",
	} {
		if got[path] != want {
			t.Errorf("licence of %s is %q, want %q", path, got[path], want)
		}
	}
}

func TestAnUnknownTextOfALicenceIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("All rights reserved."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Module{Path: "example.com/closed", Dir: dir}).Licence(); err == nil || !strings.Contains(err.Error(), "example.com/closed") {
		t.Errorf("error %v", err)
	}
}
