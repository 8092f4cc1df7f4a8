// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// A program finds the node by the place of the library, and a function only if the model's
// driver has it.
func TestAProgramFindsTheNodeOfItsLibrary(t *testing.T) {
	library := build(t)
	program := compile(t, "testdata/list.c", library)
	for model, want := range map[string]string{
		"t4":            "4 GPUs of driver 570.124.06\nnvmlDeviceSetMemoryLimits_v1: missing\n",
		"dgx-h100-r615": "8 GPUs of driver 615.",
	} {
		m, err := nvmlsim.LoadModel(model)
		if err != nil {
			t.Fatal(err)
		}
		sim, err := nvmlsim.Create(t.TempDir(), m)
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.InstallLibrary(library); err != nil {
			t.Fatal(err)
		}
		out := run(t, program, filepath.Join(sim.Root(), "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"))
		if !strings.HasPrefix(out, want) || strings.Contains(out, "missing") != strings.Contains(want, "missing") {
			t.Errorf("%s: %q", model, out)
		}
	}
}

// Wrong files of a node must be an error of NVML, not the end of the calling program.
func TestADamagedNodeIsAnErrorOfNVML(t *testing.T) {
	library := build(t)
	program := compile(t, "testdata/list.c", library)
	for name, tc := range map[string]struct {
		damage func(t *testing.T, state string)
		want   string
	}{
		"no state": {func(t *testing.T, state string) { remove(t, filepath.Join(state, "state.json")) }, "nvmlInit: Driver Not Loaded\n"},
		"half a state": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "state.json"), `{"gpus":[{"mi`)
		}, "nvmlInit: Unknown Error\n"},
		"a state of another machine": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "state.json"), `{"gpus":[{},{}]}`)
		}, "nvmlInit: Unknown Error\n"},
		"a model of another release": {func(t *testing.T, state string) {
			write(t, filepath.Join(state, "model.yaml"), "name: t4\nfuture: 1\n")
		}, "nvmlInit: Unknown Error\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := node(t, "t4")
			tc.damage(t, filepath.Join(sim.Root(), "var/lib/gpu-sim"))
			c := exec.CommandContext(t.Context(), program)
			c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library))
			out, err := c.CombinedOutput()
			if status := c.ProcessState.ExitCode(); status != 1 || string(out) != tc.want {
				t.Errorf("status %d, %v: %q, want %q", status, err, out, tc.want)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
