// SPDX-License-Identifier: Apache-2.0

package main

import (
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
