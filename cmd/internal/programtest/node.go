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
	root = filepath.Join(folder, "driver")
	makeNode(t, buildSimulator(t), root, model)
	return root
}

// Nodes makes a simulated node of each model in a folder. It returns their driver roots by
// model.
func Nodes(t testing.TB, folder string, models ...string) (roots map[string]string) {
	t.Helper()
	built, roots := buildSimulator(t), map[string]string{}
	for _, model := range models {
		roots[model] = filepath.Join(folder, model)
		makeNode(t, built, roots[model], model)
	}
	return roots
}

// buildSimulator returns a folder with gpu-sim and its library.
func buildSimulator(t testing.TB) string {
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
	return built
}

func makeNode(t testing.TB, simulator, root, model string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), filepath.Join(simulator, "gpu-sim"), "create", "--state", root, "--model", model).CombinedOutput(); err != nil {
		t.Fatalf("gpu-sim create: %v\n%s", err, out)
	}
}
