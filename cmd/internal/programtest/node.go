// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Node makes a simulated node of a model in a folder, and returns its driver root. Programs
// that were not made for the simulator use it as they use a driver.
func Node(t testing.TB, folder, model string) (root string) {
	t.Helper()
	built := t.TempDir()
	for _, args := range [][]string{
		{"build", "-o", built + "/", "github.com/gpu-dra/gpu-dra-driver/simulator/cmd/gpu-sim"},
		{"build", "-buildmode=c-shared", "-ldflags=-extldflags=-Wl,-soname,libnvidia-ml.so.1", "-o", filepath.Join(built, "libnvidia-ml.so.1"), "github.com/gpu-dra/gpu-dra-driver/simulator/cmd/libnvidia-ml"},
	} {
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("build the simulator: %v\n%s", err, out)
		}
	}
	root = filepath.Join(folder, "driver")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(built, "gpu-sim"), "create", "--state", root, "--model", model).CombinedOutput(); err != nil {
		t.Fatalf("gpu-sim create: %v\n%s", err, out)
	}
	return root
}
