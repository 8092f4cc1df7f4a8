// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// structs are the structs that the library stores or reads, by their names in nvml.h.
func structs() map[string]any {
	return map[string]any{
		"nvmlMemory_t": nvml.Memory{}, "nvmlMemory_v2_t": nvml.Memory_v2{}, "nvmlBAR1Memory_t": nvml.BAR1Memory{},
		"nvmlSetMemoryLimits_v1_t": nvml.SetMemoryLimits_v1{}, "nvmlGetMemoryLimits_v1_t": nvml.GetMemoryLimits_v1{},
		"nvmlDeviceAttributes_t": nvml.DeviceAttributes{}, "nvmlDeviceAddressingMode_t": nvml.DeviceAddressingMode{},
		"nvmlPciInfo_t": nvml.PciInfo{}, "nvmlPciInfoExt_t": nvml.PciInfoExt{}, "nvmlFieldValue_t": nvml.FieldValue{},
		"nvmlProcessInfo_v1_t": nvml.ProcessInfo_v1{}, "nvmlProcessInfo_v2_t": nvml.ProcessInfo_v2{}, "nvmlProcessInfo_t": nvml.ProcessInfo{},
		"nvmlProcessUtilizationSample_t": nvml.ProcessUtilizationSample{},
		"nvmlUtilization_t":              nvml.Utilization{},
		"nvmlGpuFabricInfo_t":            nvml.GpuFabricInfo{}, "nvmlGpuFabricInfo_v2_t": nvml.GpuFabricInfo_v2{},
		"nvmlGpuFabricInfo_v3_t": nvml.GpuFabricInfo_v3{}, "nvmlGpuFabricInfo_v4_t": nvml.GpuFabricInfo_v4{},
		"nvmlGpuInstancePlacement_t":   nvml.GpuInstancePlacement{},
		"nvmlGpuInstanceProfileInfo_t": nvml.GpuInstanceProfileInfo{}, "nvmlGpuInstanceProfileInfo_v2_t": nvml.GpuInstanceProfileInfo_v2{},
		"nvmlGpuInstanceProfileInfo_v3_t": nvml.GpuInstanceProfileInfo_v3{}, "nvmlGpuInstanceInfo_t": gpuInstanceInfo{},
		"nvmlComputeInstancePlacement_t":   nvml.ComputeInstancePlacement{},
		"nvmlComputeInstanceProfileInfo_t": nvml.ComputeInstanceProfileInfo{}, "nvmlComputeInstanceProfileInfo_v2_t": nvml.ComputeInstanceProfileInfo_v2{},
		"nvmlComputeInstanceProfileInfo_v3_t": nvml.ComputeInstanceProfileInfo_v3{}, "nvmlComputeInstanceInfo_t": computeInstanceInfo{},
		"nvmlEventData_t": eventData{},
	}
}

// inC returns the name of a field in nvml.h: that in Go with a small letter, unless a tag says
// otherwise.
func inC(field reflect.StructField) string {
	if name := field.Tag.Get("c"); name != "" {
		return name
	}
	first, size := utf8.DecodeRuneInString(field.Name)
	return string(unicode.ToLower(first)) + field.Name[size:]
}

// layoutFile asserts in C the layout that the structs have in Go. The Makefile compiles it with
// nvml.h, so that a library with a wrong layout is not built.
const layoutFile = "testdata/layout.c"

func TestTheAssertionsMatchTheStructs(t *testing.T) {
	var c strings.Builder
	c.WriteString("// SPDX-License-Identifier: Apache-2.0\n\n")
	c.WriteString("// The layout of the structs in Go. TestTheAssertionsMatchTheStructs writes it with UPDATE_GOLDEN=1.\n\n")
	c.WriteString("#include <stddef.h>\n\n#include \"nvml.h\"\n")
	for _, name := range slices.Sorted(maps.Keys(structs())) {
		layout := reflect.TypeOf(structs()[name])
		fmt.Fprintf(&c, "\n_Static_assert(sizeof(%s) == %d, \"%s\");\n", name, layout.Size(), name)
		for i := range layout.NumField() {
			field := layout.Field(i)
			if strings.HasPrefix(field.Name, "Pad_cgo") {
				continue
			}
			fmt.Fprintf(&c, "_Static_assert(offsetof(%s, %s) == %d, \"%s.%s\");\n", name, inC(field), field.Offset, name, inC(field))
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(layoutFile, []byte(c.String()), 0o644))
	}
	want, err := os.ReadFile(layoutFile)
	must(t, err)
	if diff := cmp.Diff(string(want), c.String()); diff != "" {
		t.Errorf("UPDATE_GOLDEN=1 writes it (-%s +structs):\n%s", layoutFile, diff)
	}
}
