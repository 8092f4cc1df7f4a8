// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// install creates a node of a model with a library of its own, and returns the path of the
// library in the node.
func install(t *testing.T, m *nvmlsim.Model, library string) string {
	t.Helper()
	sim, err := nvmlsim.Create(t.TempDir(), m)
	must(t, err)
	must(t, sim.InstallLibrary(library))
	installed, err := filepath.Glob(filepath.Join(sim.Root(), "usr/lib/*/libnvidia-ml.so.1"))
	if err != nil || len(installed) != 1 {
		t.Fatalf("libraries %q, %v", installed, err)
	}
	return installed[0]
}

// A program finds the node by the place of the library, and a function only if the model's
// driver has it.
func TestAProgramFindsTheFunctionsOfTheDriver(t *testing.T) {
	library := build(t)
	program := compile(t, "testdata/list.c", library)
	// The first release of each function, by NVIDIA's change log; 0 for earlier ones.
	functions := []struct {
		name  string
		first int
	}{
		{"nvmlDeviceGetCount_v2", 0}, {"nvmlEventSetWait_v2", 0}, {"nvmlDeviceGetNumaNodeId", 550}, {"nvmlDeviceGetGpuFabricInfoV", 550},
		{"nvmlDeviceGetCapabilities", 555}, {"nvmlSystemGetDriverBranch", 560}, {"nvmlDeviceGetPlatformInfo", 565},
		{"nvmlDeviceGetMarginTemperature", 570}, {"nvmlDeviceGetHandleByUUIDV", 575}, {"nvmlDeviceGetGpuInstanceProfileInfoByIdV", 580},
		{"nvmlDeviceGetUnrepairableMemoryFlag_v1", 590}, {"nvmlDeviceReadPRMCounters_v1", 595}, {"nvmlSystemGetCPER_v1", 610},
		{"nvmlDeviceGetGpuFabricInfo_v4", 615}, {"nvmlDeviceSetMemoryLimits_v1", 615},
	}
	for driver, release := range map[string]int{"535.288.01": 535, "570.124.06": 570, "590.48.01": 590, "615.71.09": 615} {
		m := model(t, "dgx-h100-r615")
		if m.DriverVersion = driver; release < 615 {
			m.MemoryLimits = ""
		}
		want := "8 GPUs of driver " + driver + "\n"
		var names []string
		for _, f := range functions {
			if names = append(names, f.name); f.first > release {
				want += f.name + ": missing\n"
			}
		}
		if out := run(t, program, install(t, m, library), names...); out != want {
			t.Errorf("driver %s: %q, want %q", driver, out, want)
		}
	}
}

// Go-nvml looks functions up. A program that has loaded the library from elsewhere can call
// a function that the node's driver does not have.
func TestAFunctionOfALaterDriver(t *testing.T) {
	library := build(t)
	installed := dl.New(install(t, model(t, "dgx-h100"), library), dl.RTLD_NOW)
	must(t, installed.Open())
	defer installed.Close() //nolint:errcheck // the test's process ends
	for name, want := range map[string]bool{"nvmlDeviceGetGpuFabricInfoV": true, "nvmlDeviceGetGpuFabricInfo_v4": false} {
		if err := installed.Lookup(name); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
	for name, want := range map[string]nvml.Return{"dgx-h100": nvml.ERROR_FUNCTION_NOT_FOUND, "dgx-h100-r615": nvml.SUCCESS} {
		t.Run(name, func(t *testing.T) {
			node(t, name)
			device, ret := start(t, nvml.New(nvml.WithLibraryPath(library))).DeviceGetHandleByIndex(0)
			if ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
			if _, ret := device.GetGpuFabricInfo_v4(); ret != want {
				t.Errorf("got %v, want %v", ret, want)
			}
		})
	}
}

// A program may load the libraries of several nodes.
func TestTwoLibrariesInOneProgram(t *testing.T) {
	library := build(t)
	// The program links the library for its symbols, and looks them up in others.
	program := compile(t, "testdata/two.c", library)
	first, second := install(t, model(t, "t4"), library), install(t, model(t, "dgx-h100"), library)
	if out := run(t, program, library, first, second); out != strings.Repeat("4 GPUs\n8 GPUs\n", 2) {
		t.Errorf("printed %q", out)
	}
}
