// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sync/errgroup"
)

// compile compiles a C program of testdata with the library and nvml.h.
func compile(t *testing.T, source, library string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-Wall", "-Wno-deprecated-declarations", "-pthread", "-I", header(t), "-o", program, source, library}, flags...)
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return program
}

// run runs a program with the library and returns its output.
func run(t *testing.T, program, library string, args ...string) string {
	t.Helper()
	return runWith(t, "", program, library, args...)
}

// runWith is run with an input.
func runWith(t *testing.T, input, program, library string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Stdin = strings.NewReader(input)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(library))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// A program of C has no part of Go, and makes mistakes that go-nvml does not let happen. With
// the address sanitizer, a byte that the library writes beyond a buffer ends the program.
func TestManyThreadsOfACProgram(t *testing.T) {
	library := build(t, "-asan")
	node(t, "dgx-h100")
	if out := run(t, compile(t, "testdata/threads.c", library, "-fsanitize=address"), library); out != "" {
		t.Error(out)
	}
}

// Every function refuses a caller without nvmlInit, and one after the last nvmlShutdown.
func TestACallerWithoutInit(t *testing.T) {
	library := build(t)
	node(t, "dgx-h100")
	names := slices.DeleteFunc(declared(t), func(name string) bool {
		return strings.HasPrefix(name, "nvmlInit") || name == "nvmlErrorString"
	})
	if out := runWith(t, strings.Join(names, "\n"), compile(t, "testdata/functions.c", library), library); out != "" {
		t.Error(out)
	}
}

func TestAStructOfAnUnknownVersion(t *testing.T) {
	library := build(t)
	node(t, "dgx-h100-r615")
	if out := run(t, compile(t, "testdata/versions.c", library), library); out != "" {
		t.Error(out)
	}
}

// The race detector cannot start in a library that a C program loads, so this calls the
// functions that C programs call.
func TestManyThreadsWithTheRaceDetector(t *testing.T) {
	node(t, "dgx-h100")
	var threads errgroup.Group
	for thread := range 64 {
		threads.Go(func() error {
			for range 2 {
				if err := useEverything(uint32(thread % 8)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := threads.Wait(); err != nil {
		t.Error(err)
	}
	if have := len(process.handles.objects); have > 2*8 {
		t.Errorf("%d handles are left, want those of the GPUs", have)
	}
}

// useEverything makes calls of a GPU that read, change and wait, between init and shutdown.
func useEverything(index uint32) error {
	var device, instance, compute, set handle
	var mode uint32
	var event eventData
	var activation status
	for _, call := range []struct {
		name string
		want []status
		make func() status
	}{
		{"init", []status{0}, nvmlInit},
		{"handle", []status{0}, func() status { return nvmlDeviceGetHandleByIndex(index, &device) }},
		{"mode", []status{0}, func() status { return nvmlDeviceGetComputeMode(device, &mode) }},
		{"event set", []status{0}, func() status { return nvmlEventSetCreate(&set) }},
		{"register", []status{0}, func() status { return nvmlDeviceRegisterEvents(device, nvml.EventTypeXidCriticalError, set) }},
		{"wait", []status{nvmlTimeout}, func() status { return nvmlEventSetWait(set, unsafe.Pointer(&event), 1) }},
		{"free", []status{0}, func() status { return nvmlEventSetFree(set) }},
		// Other threads may have all places, or use the instance that has this one's.
		{"MIG", []status{0, nvmlInUse}, func() status { return nvmlDeviceSetMigMode(device, nvml.DEVICE_MIG_ENABLE, &activation) }},
		{"create", []status{0, nvmlNoResources}, func() status { return nvmlDeviceCreateGpuInstance(device, 19, &instance) }},
		{"compute", []status{0, invalid}, func() status { return nvmlGpuInstanceCreateComputeInstance(instance, 0, &compute) }},
		{"destroy compute", []status{0, invalid}, func() status { return nvmlComputeInstanceDestroy(compute) }},
		{"destroy", []status{0, invalid}, func() status { return nvmlGpuInstanceDestroy(instance) }},
		{"shutdown", []status{0}, nvmlShutdown},
	} {
		if got := call.make(); !slices.Contains(call.want, got) {
			return fmt.Errorf("%s: %s", call.name, nvml.ErrorString(nvml.Return(got)))
		}
	}
	return nil
}

const (
	nvmlTimeout     = status(nvml.ERROR_TIMEOUT)
	nvmlInUse       = status(nvml.ERROR_IN_USE)
	nvmlNoResources = status(nvml.ERROR_INSUFFICIENT_RESOURCES)
)
