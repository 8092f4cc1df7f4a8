// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// fixture is a builder and the images that it builds. It has a program for every
// one that an image names. Nothing of it is changed.
type fixture struct {
	builder
	dir string
	// dynamic, static, staticC and library are the programs that stand in for ours. staticC
	// has the C library linked into it.
	dynamic, static, staticC, library string
	images                            map[string]v1.Image
}

// shared is made once: compressing takes its time under the race detector.
var shared = sync.OnceValues(func() (f fixture, err error) {
	if f.dir, err = os.MkdirTemp("", "images-"); err != nil {
		return f, err
	}
	in := func(name string) string { return filepath.Join(f.dir, name) }
	f.dynamic, f.static, f.staticC, f.library = in("dynamic"), in("static"), in("static-c"), in("library")
	for _, p := range []struct{ file, from, cgo, mode, ldflags string }{
		{f.dynamic, "dynamic", "1", "exe", ""},
		{f.static, "static", "0", "exe", ""},
		{f.staticC, "dynamic", "1", "exe", " -linkmode external -extldflags -static"},
		{f.library, "library", "1", "c-shared", ""},
	} {
		cmd := exec.Command("go", "build", "-buildmode="+p.mode, "-trimpath", "-buildvcs=false", "-ldflags=-s -w"+p.ldflags, "-o", p.file, "./testdata/"+p.from)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
		if text, err := cmd.CombinedOutput(); err != nil {
			return f, fmt.Errorf("%w: %s", err, text)
		}
	}
	f.builder = builder{bin: filepath.Join(f.dir, "bin"), licence: "../../LICENSE", version: "v1.2.3+abc", revision: "0123abc", created: time.Unix(1700000000, 0), layers: layer.Cache{}}
	if f.sources, err = goRoots(context.Background()); err != nil {
		return f, err
	}
	if err := os.MkdirAll(filepath.Join(f.bin, simFolder), 0o755); err != nil {
		return f, err
	}
	f.images = map[string]v1.Image{}
	for _, i := range images() {
		for _, p := range i.programs {
			from := f.dynamic
			switch {
			case strings.HasPrefix(p.name, "lib"):
				from = f.library
			case p.onHost:
				from = f.staticC
			case p.name == "probe":
				from = f.static
			}
			err = errors.Join(err, copyFile(from, filepath.Join(f.bin, p.folder, p.name)))
		}
		if err != nil {
			return f, err
		}
		if f.images[i.name], err = f.build(context.Background(), i); err != nil {
			return f, err
		}
	}
	return f, nil
})

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o700)
}

func TestMain(m *testing.M) {
	code := m.Run()
	f, _ := shared()
	if err := os.RemoveAll(f.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func get(t *testing.T) fixture {
	t.Helper()
	f, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// changed is the builder with other programs.
func (f fixture) changed(t *testing.T) builder {
	t.Helper()
	b := f.builder
	b.bin = t.TempDir()
	if err := os.CopyFS(b.bin, os.DirFS(f.bin)); err != nil {
		t.Fatal(err)
	}
	return b
}
