// SPDX-License-Identifier: Apache-2.0

package notices

import (
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
	if _, err := r.Files(program(t), own, "doc"); err == nil || !strings.Contains(err.Error(), "terms of Go") {
		t.Errorf("error %v", err)
	}
}
