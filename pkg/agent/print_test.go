// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// printed prints the slices of a simulated node with the faults, and returns the two
// outputs.
func printed(t *testing.T, model string, offer catalog.Offer, faults ...nvmlsim.CallFault) (slices, problems string, err error) {
	t.Helper()
	return printedAfter(t, model, offer, func(*nvmlsim.Sim) error { return nil }, faults...)
}

// printedAfter is printed after a change of the simulated node.
func printedAfter(t *testing.T, model string, offer catalog.Offer, change func(*nvmlsim.Sim) error, faults ...nvmlsim.CallFault) (slices, problems string, err error) {
	t.Helper()
	c, folder := testConfig(), filepath.Join(files.ShortDir(t), "sim")
	c.Offer = offer
	hw := open(t, c, model, folder)
	sim, err := nvmlsim.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		if err := sim.FailCalls(fault); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(sim); err != nil {
		t.Fatal(err)
	}
	var out, complaints bytes.Buffer
	err = errors.Join(printSlices(t.Context(), c, hw, &out, &complaints), hw.close())
	return out.String(), complaints.String(), err
}

func failing(method string, gpus ...int) []nvmlsim.CallFault {
	var faults []nvmlsim.CallFault
	for _, index := range gpus {
		faults = append(faults, nvmlsim.CallFault{Method: method, GPU: &index, Return: nvml.ERROR_GPU_IS_LOST})
	}
	return faults
}

func TestPrintingNamesTheGPUThatCannotBeReadAndPrintsTheOthers(t *testing.T) {
	t.Parallel()
	slices, problems, err := printed(t, "t4", "share", failing("DeviceGetUUID", 1)...)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(problems, "GPU at 0000:3b:00.0: read its UUID: GPU lost") || strings.Count(problems, "\n") != 1 {
		t.Errorf("said %q, want a line about the GPU at 0000:3b:00.0", problems)
	}
	if !strings.Contains(slices, `"gpu-18-00"`) || strings.Contains(slices, `"gpu-3b-00"`) {
		t.Errorf("printed, want the GPUs that answer and no other:\n%s", slices)
	}
}

func TestPrintingFailsIfNoGPUCanBeRead(t *testing.T) {
	t.Parallel()
	slices, problems, err := printed(t, "t4", "share", failing("DeviceGetUUID", 0, 1, 2, 3)...)
	if !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), "none of the 4 GPUs can be read") {
		t.Errorf("error %v, want it to say that none of the 4 GPUs can be read", err)
	}
	if strings.Count(problems, "GPU at 0000:") != 4 {
		t.Errorf("said, want a line for each GPU:\n%s", problems)
	}
	if slices != "" {
		t.Errorf("printed, want nothing that could be taken for the node's slices:\n%s", slices)
	}
}

func TestPrintingOfANodeWithoutGPUsIsAnEmptyListAndAWord(t *testing.T) {
	t.Parallel()
	slices, problems, err := printedAfter(t, "t4", "share", func(sim *nvmlsim.Sim) error {
		return os.RemoveAll(filepath.Join(sim.Root(), "sys", "bus", "pci", "devices"))
	}, nvmlsim.CallFault{Method: "Init", Return: nvml.ERROR_GPU_NOT_FOUND})
	if err != nil {
		t.Fatal(err)
	}
	if problems != "the driver lists no GPU\n" || !strings.Contains(slices, `"kind": "List"`) {
		t.Errorf("said %q and printed, want a word and a List:\n%s", problems, slices)
	}
}

func TestPrintSlicesNamesUnknownAttributes(t *testing.T) {
	c := testConfig()
	hw := open(t, c, "t4", filepath.Join(files.ShortDir(t), "sim"))
	c.UnknownAttributes = errors.New("--attributes: colour")
	var out, complaints bytes.Buffer
	if err := errors.Join(printSlices(t.Context(), c, hw, &out, &complaints), hw.close()); err != nil {
		t.Fatal(err)
	}
	if complaints.String() != "--attributes: colour\n" || !strings.Contains(out.String(), "gpu-3b-00") {
		t.Errorf("problems %q, slices %s", complaints.String(), out.String())
	}
}
