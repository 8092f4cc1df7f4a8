// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// build builds the library, with the name that the driver's has. All tests share the one
// without flags, which takes seconds to link.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	build := shared
	if len(flags) > 0 {
		build = func() (string, error) { return link(t.TempDir(), flags...) }
	}
	path, err := build()
	must(t, err)
	return path
}

// shared is the library without flags. TestMain sets it.
var shared func() (string, error)

// link builds the library in a folder.
func link(dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	args := append([]string{"build", "-buildmode=c-shared", "-ldflags=-extldflags=-Wl,-soname,libnvidia-ml.so.1", "-o", path}, flags...)
	if out, err := exec.CommandContext(context.Background(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the library: %w\n%s", err, out)
	}
	return path, nil
}

// model loads a built-in model.
func model(t testing.TB, name string) *nvmlsim.Model {
	t.Helper()
	m, err := nvmlsim.LoadModel(name)
	must(t, err)
	return m
}

// node creates a node of a model. It is the node of the library from the next nvmlInit on.
func node(t testing.TB, name string) *nvmlsim.Sim {
	t.Helper()
	dir := t.TempDir()
	sim, err := nvmlsim.Create(dir, model(t, name))
	must(t, err)
	t.Setenv("GPU_SIM_STATE", dir)
	return sim
}

// start initialises a library until the test ends.
func start(t testing.TB, lib nvml.Interface) nvml.Interface {
	t.Helper()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	t.Cleanup(func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			t.Error(ret)
		}
	})
	return lib
}

// TestMain unsets a variable that a developer may have set for other programs, and removes
// the shared library.
func TestMain(m *testing.M) {
	if err := os.Unsetenv("GPU_SIM_STATE"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "libnvidia-ml-")
	if err != nil {
		panic(err)
	}
	shared = sync.OnceValues(func() (string, error) { return link(dir) })
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(status)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
