// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestShowAsText(t *testing.T) {
	s, lib := newTestSim(t, "a30-bridge")
	d := gpuHandle(t, lib, 0)
	if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); activation != nvml.ERROR_RESET_REQUIRED || ret != nvml.SUCCESS {
		t.Fatalf("%v, %v", activation, ret)
	}
	noError(t, s.ResetGPU(0))
	place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, 3, 1)
	ci := spanning(t, place(t, d, nvml.GPU_INSTANCE_PROFILE_2_SLICE, 0, 2), nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE)
	info := must[nvml.ComputeInstanceInfo](t, "info")(ci.GetInfo())
	mig := must[string](t, "UUID")(info.Device.GetUUID())
	if _, ret := gpuHandle(t, lib, 1).SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	succeed(t, gpuHandle(t, lib, 1).SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	for _, err := range []error{
		s.AddProcess(0, Process{PID: 77, Name: "infer", MemoryBytes: 3 << 30, Device: mig}),
		s.AddProcess(1, Process{PID: 78, MemoryBytes: 1 << 30}),
		s.FailECC(1), s.LinkDown(2, 1), s.LoseGPU(3),
		s.FailCalls(CallFault{Method: "DeviceGetUUID", GPU: new(1), Count: 3, Return: nvml.ERROR_TIMEOUT}),
		s.FailCalls(CallFault{Method: "DeviceGetCount", Hang: Duration(5e9)}),
	} {
		noError(t, err)
	}
	view, err := s.View()
	noError(t, err)
	// What differs from run to run.
	view.Directory, view.RealDevices = "/state", true
	var b strings.Builder
	noError(t, view.WriteText(&b))
	got := strings.NewReplacer(view.BootID, "<boot ID>", mig, "<MIG UUID>").Replace(b.String())
	golden := filepath.Join("testdata", "show.txt")
	if *update {
		noError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	noError(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("gpu-sim show (-want +got):\n%s", diff)
	}
}
