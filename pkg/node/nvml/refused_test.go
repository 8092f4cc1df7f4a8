// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"
	"testing/synctest"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// optionalCalls read facts that a GPU can lack. The others that a scan calls are the handle of
// the GPU, its PCI address, its UUID and its minor number, without which nothing can be done.
func optionalCalls() []string {
	return append(nvmlsim.RefusableCalls(), "DeviceGetName", "DeviceGetBrand", "DeviceGetArchitecture", "DeviceGetCudaComputeCapability",
		"DeviceGetNvLinkState", "DeviceGetNvLinkRemotePciInfo", "DeviceGetGpuInstanceProfileInfo")
}

// Whatever call a driver refuses, all GPUs of every machine are there.
func TestNoRefusedCallHidesAGPU(t *testing.T) {
	t.Parallel()
	for _, model := range append(nvmlsim.ModelNames(), "testdata/gb10.yaml") {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			// The clock of the test stands still while a call runs, so that no limit ends one on a
			// busy machine.
			synctest.Test(t, func(t *testing.T) {
				sim := simulate(t, model)
				l := nvml.New(sim.NVML())
				all := len(snapshot(t, l).GPUs)
				if all == 0 {
					t.Fatal("no GPUs")
				}
				for _, call := range optionalCalls() {
					must(t, sim.FailCalls(nvmlsim.CallFault{Method: call, Return: gonvml.ERROR_NOT_SUPPORTED}))
					node := snapshot(t, l)
					if len(node.GPUs) != all {
						t.Errorf("%s is refused: %d GPUs of %d, unreadable: %+v", call, len(node.GPUs), all, node.Unreadable)
					}
					for _, g := range node.GPUs {
						if err := l.Check(t.Context(), g.Address); err != nil {
							t.Errorf("%s is refused: %v", call, err)
						}
					}
					must(t, sim.ClearFaults())
				}
			})
		})
	}
}

// The GPU of a GB10 has no memory of its own, and NVML does not report any.
func TestAGPUWithoutMemoryOfItsOwn(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "testdata/gb10.yaml")
	l := nvml.New(sim.NVML())
	node := snapshot(t, l)
	if len(node.GPUs) != 1 || node.GPUs[0].MemoryBytes != 0 || node.GPUs[0].ProductName != "NVIDIA GB10" {
		t.Fatalf("%d GPUs, unreadable: %+v", len(node.GPUs), node.Unreadable)
	}
	if err := l.Check(t.Context(), node.GPUs[0].Address); err != nil {
		t.Error(err)
	}
	if gauges, err := l.Gauges(t.Context(), node.GPUs[0].Address); err != nil || gauges.MemoryUsedBytes != nil {
		t.Errorf("gauges %+v, %v", gauges, err)
	}
}
