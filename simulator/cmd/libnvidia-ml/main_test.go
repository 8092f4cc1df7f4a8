// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// build builds the library, with the name that the driver's has.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := append([]string{"build", "-buildmode=c-shared", "-ldflags=-extldflags=-Wl,-soname,libnvidia-ml.so.1", "-o", path}, flags...)
	if out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("build the library: %v\n%s", err, out)
	}
	return path
}

// node creates a node of a model. It is the node of the library from the next nvmlInit on.
func node(t testing.TB, model string) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sim, err := nvmlsim.Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
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

// TestMain unsets a variable that a developer may have set for other programs.
func TestMain(m *testing.M) {
	if err := os.Unsetenv("GPU_SIM_STATE"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
