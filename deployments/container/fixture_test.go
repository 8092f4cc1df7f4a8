// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	// dynamic, simulated and static are the programs that stand in for ours.
	dynamic, simulated, static string
	images                     map[string]v1.Image
}

// shared is made once: compressing takes its time under the race detector.
var shared = sync.OnceValues(func() (f fixture, err error) {
	if f.dir, err = os.MkdirTemp("", "images-"); err != nil {
		return f, err
	}
	f.dynamic, f.simulated, f.static = filepath.Join(f.dir, "dynamic"), filepath.Join(f.dir, "simulated"), filepath.Join(f.dir, "static")
	for _, p := range []struct{ file, from, cgo, tags string }{
		{f.dynamic, "dynamic", "1", ""},
		{f.simulated, "dynamic", "1", "sim"},
		{f.static, "static", "0", ""},
	} {
		cmd := exec.Command("go", "build", "-tags="+p.tags, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", p.file, "./testdata/"+p.from)
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
			case p.onHost || p.name == "probe":
				from = f.static
			case p.folder == simFolder:
				from = f.simulated
			}
			if !p.debian {
				err = errors.Join(err, copyFile(from, filepath.Join(f.bin, p.folder, p.name)))
			}
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
