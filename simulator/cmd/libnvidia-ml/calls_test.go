// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestCallsAreCounted(t *testing.T) {
	node(t, "t4")
	file := filepath.Join(t.TempDir(), "calls")
	t.Setenv("GPU_SIM_CALLS", file)
	lib := nvml.New(nvml.WithLibraryPath(build(t)))
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(file)
		must(t, err)
		return info.Size()
	}
	for range 2 {
		if ret := lib.Init(); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		before := size()
		for range 5 {
			if _, ret := lib.DeviceGetCount(); ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
		}
		if calls := size() - before; calls != 5 {
			t.Errorf("%d calls were counted, want 5", calls)
		}
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	t.Setenv("GPU_SIM_CALLS", filepath.Join(file, "below-a-file"))
	if ret := lib.Init(); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a file that cannot be made: %v, want an invalid argument", ret)
	}
}
