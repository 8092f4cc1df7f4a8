// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programs writes a folder with all programs of the images, each a copy of one.
func programs(t *testing.T, of string) string {
	t.Helper()
	content, err := os.ReadFile(of)
	must(t, err)
	bin := t.TempDir()
	for _, i := range images() {
		for _, name := range i.programs {
			file := filepath.Join(bin, name)
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(t, os.WriteFile(file, content, 0o755))
		}
	}
	return bin
}

// static builds a static program.
func static(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "program")
}

func entries(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err != nil {
			return found
		}
		var content bytes.Buffer
		if _, err := content.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		found[header.Name] = content.Bytes()
	}
}

func TestTheSameProgramsGiveTheSameArchiveWhoseBlobsHaveTheirDigests(t *testing.T) {
	bin, out := programs(t, static(t)), t.TempDir()
	must(t, write(bin, out, "example.com/team", "v1.0.0_a"))
	archive, err := os.ReadFile(filepath.Join(out, "gpu-probe.tar"))
	must(t, err)
	must(t, write(bin, out, "example.com/team", "v1.0.0_a"))
	if again, err := os.ReadFile(filepath.Join(out, "gpu-probe.tar")); err != nil || !bytes.Equal(again, archive) {
		t.Errorf("the second archive is another one (%v)", err)
	}
	all := entries(t, archive)
	for name, content := range all {
		if blob, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && blob != "" && blob != digest(content) {
			t.Errorf("blob %s has the digest %s", blob, digest(content))
		}
	}
	var saved []struct{ RepoTags, Layers []string }
	if err := json.Unmarshal(all["manifest.json"], &saved); err != nil || len(saved) != 1 {
		t.Fatalf("manifest.json: %v: %s", err, all["manifest.json"])
	}
	if want := []string{"example.com/team/gpu-probe:v1.0.0_a", "example.com/team/gpu-probe:demo"}; !slices.Equal(saved[0].RepoTags, want) {
		t.Errorf("names %q, want %q", saved[0].RepoTags, want)
	}
	if len(all[saved[0].Layers[0]]) == 0 {
		t.Errorf("no layer %s", saved[0].Layers[0])
	}
}

func TestADynamicProgramGetsItsLibrariesAndNoneRunsOnAHost(t *testing.T) {
	files, err := image{programs: []string{"sh"}}.contents("/bin")
	must(t, err)
	for _, library := range runtimeLibraries() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(name string) bool { return filepath.Base(name) == library }) {
			t.Errorf("no %s", library)
		}
	}
	if _, err := (image{programs: []string{"sh"}, onHost: []string{"sh"}}).contents("/bin"); err == nil || !strings.Contains(err.Error(), "statically") {
		t.Errorf("a dynamic program for the host: error %v", err)
	}
}

func TestEveryProgramIsInAnImage(t *testing.T) {
	commands, err := filepath.Glob("../../cmd/*/main.go")
	if err != nil || len(commands) == 0 {
		t.Fatal(err, commands)
	}
	dockerfile, err := os.ReadFile("../../deployments/container/Dockerfile")
	must(t, err)
	for _, command := range commands {
		name := filepath.Base(filepath.Dir(command))
		if name == "kubectl-gpu" { // runs on the computers of users
			continue
		}
		if !slices.ContainsFunc(images(), func(i image) bool { return slices.Contains(i.programs, name) }) {
			t.Errorf("%s is in no image", name)
		}
	}
	for _, i := range images() {
		if !strings.Contains(string(dockerfile), " AS "+i.name+"\n") {
			t.Errorf("the Dockerfile has no target %s", i.name)
		}
		for _, program := range i.programs {
			if !strings.Contains(string(dockerfile), program) {
				t.Errorf("the Dockerfile does not copy %s", program)
			}
		}
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
