// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var someGPU = gpu.PCIAddress{Bus: 0x1b}

// smiScript installs a shell script as the driver's nvidia-smi.
func smiScript(t *testing.T, script string) gpu.DriverRoot {
	t.Helper()
	root := gpu.DriverRoot(t.TempDir())
	must(t, os.MkdirAll(filepath.Dir(root.Binaries("nvidia-smi")[0]), 0o755))
	must(t, os.WriteFile(root.Binaries("nvidia-smi")[0], []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return root
}

func TestATimeSliceIsFoundInWhateverTableThereIs(t *testing.T) {
	for name, tc := range map[string]struct {
		table string
		want  gpu.TimeSlice
	}{
		"a word in a table":        {"+---+\n| GPU compute policies:    |\n| GPU  Name       Value    |\n|  0   Timeslice  Medium   |\n+---+", gpu.TimeSliceMedium},
		"capitals":                 {"|  2   TIME_SLICE CONFIG   LONG |", gpu.TimeSliceLong},
		"a number":                 {"0, Time Slice: 1", gpu.TimeSliceShort},
		"the value in parentheses": {"GPU 3: timeslice = DEFAULT(0)", gpu.TimeSliceDefault},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nvml.NewSMI(smiScript(t, "cat <<'EOT'\n"+tc.table+"\nEOT")).TimeSlice(t.Context(), someGPU)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	for name, table := range map[string]string{
		"no policy":        "| GPU compute policies: |\n| 0  Default |",
		"an unknown value": "| 0 Timeslice  Eternal |",
		"nothing":          "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nvml.NewSMI(smiScript(t, "cat <<'EOT'\n"+table+"\nEOT")).TimeSlice(t.Context(), someGPU)
			require.Error(t, "TimeSlice", err, gpu.ErrNotSupported)
		})
	}
}

func TestNvidiaSMIRunsWithTheLibrariesOfTheDriverRoot(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	root := smiScript(t, `echo "$@ in ${LD_LIBRARY_PATH##*:}" >> `+record)
	smi := nvml.NewSMI(root)
	must(t, smi.SetTimeSlice(t.Context(), someGPU, gpu.TimeSliceLong))
	must(t, smi.SetTimeSlice(t.Context(), someGPU, gpu.TimeSliceDefault))
	must(t, nvml.ResetWith(root)(t.Context(), someGPU))
	got, err := os.ReadFile(record)
	must(t, err)
	in := " in " + filepath.Join(string(root), "lib") + "\n"
	want := "compute-policy -i 0000:1b:00.0 --set-timeslice=3" + in +
		"compute-policy -i 0000:1b:00.0 --set-timeslice=0" + in +
		"--gpu-reset -i 0000:1b:00.0" + in
	require.Same(t, "calls of nvidia-smi", want, string(got))
	require.Error(t, "SetTimeSlice", smi.SetTimeSlice(t.Context(), someGPU, "Eternal"), gpu.ErrInvalid)
}

func TestTheExitStatusOfNvidiaSMIBecomesASentinel(t *testing.T) {
	for status, want := range map[int]error{2: gpu.ErrInvalid, 3: gpu.ErrNotSupported, 4: gpu.ErrPermission, 6: gpu.ErrNotFound, 9: gpu.ErrNotReady, 15: gpu.ErrLost} {
		root := smiScript(t, fmt.Sprintf("echo 'the reason'; exit %d", status))
		err := nvml.NewSMI(root).SetTimeSlice(t.Context(), someGPU, gpu.TimeSliceLong)
		require.Error(t, fmt.Sprintf("status %d", status), err, want, "the reason")
		if err := nvml.ResetWith(root)(t.Context(), someGPU); !errors.Is(err, want) || errors.Is(err, gpu.ErrInUse) {
			t.Errorf("status %d of a reset: got %v, want %v", status, err, want)
		}
	}
	// nvidia-smi does not name a daemon that has the GPU open, and no command that ends it.
	err := nvml.ResetWith(smiScript(t, "exit 255"))(t.Context(), someGPU)
	require.Error(t, "a reset that fails for no stated reason", err, gpu.ErrInUse, "fuser --verbose", "#reset-a-gpu")
	_, err = nvml.NewSMI(gpu.DriverRoot(t.TempDir())).TimeSlice(t.Context(), someGPU)
	require.Error(t, "without nvidia-smi", err, gpu.ErrNotReady, "install the NVIDIA driver")
}

func TestAnNvidiaSMIThatHangsIsGivenUp(t *testing.T) {
	// The child keeps the output open, as one of nvidia-smi's could.
	smi := nvml.NewSMI(smiScript(t, "sleep 1000 & wait"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := smi.TimeSlice(ctx, someGPU)
	require.Error(t, "TimeSlice", err, gpu.ErrTimeout)
}

func TestNvidiaSMIIsFoundInARootThatHoldsNothingButTheDriver(t *testing.T) {
	from := smiScript(t, "echo Timeslice Medium")
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "bin"), 0o755))
	must(t, os.Rename(from.Binaries("nvidia-smi")[0], filepath.Join(root, "bin/nvidia-smi")))
	if got, err := nvml.NewSMI(gpu.DriverRoot(root)).TimeSlice(t.Context(), someGPU); err != nil || got != gpu.TimeSliceMedium {
		t.Errorf("got %q, %v", got, err)
	}
}
