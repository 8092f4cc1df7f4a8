// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// fabricOf is what a snapshot reports of a GPU's fabric.
type fabricOf struct {
	State  gpu.FabricState
	Fabric *gpu.Fabric
}

func readFabric(t *testing.T, l *nvml.Library, index int) fabricOf {
	t.Helper()
	g := snapshot(t, l).GPUs[index]
	return fabricOf{g.FabricState, g.Fabric}
}

func TestTheFabricOfEachModel(t *testing.T) {
	rack := &gpu.Fabric{ClusterUUID: "5d6e29b4-1d0c-4c8e-9f3a-72b1c0ffee72", CliqueID: 32766}
	for model, want := range map[string]fabricOf{
		// Behind NVSwitch, from Hopper on; the fabric ends at the machine.
		"dgx-h100": {State: gpu.FabricCompleted},
		"hgx-h200": {State: gpu.FabricCompleted},
		"dgx-b200": {State: gpu.FabricCompleted},
		// A rack's.
		"gb200": {State: gpu.FabricCompleted, Fabric: rack},
		// Behind NVSwitch before Hopper, bridged, linked without switches, alone.
		"dgx-a100": {}, "a30-bridge": {}, "dgx1-v100": {}, "l40s": {}, "t4": {}, "rtx-pro-6000": {}, "mixed-a30-l40s": {},
	} {
		require.Same(t, model, want, readFabric(t, nvml.New(simulate(t, model).NVML()), 0))
	}
}

func TestAFabricThatIsNotCompleted(t *testing.T) {
	for _, state := range []gpu.FabricState{gpu.FabricNotStarted, gpu.FabricInProgress, gpu.FabricFailed} {
		t.Run(string(state), func(t *testing.T) {
			sim := simulate(t, "gb200")
			l := nvml.New(sim.NVML())
			before := readFabric(t, l, 1)
			must(t, sim.SetFabric(1, nvmlsim.FabricState(state)))
			require.Same(t, "fabric", fabricOf{State: state}, readFabric(t, l, 1))
			require.Same(t, "the other GPU", before, readFabric(t, l, 0))
			err := sim.AddProcess(1, nvmlsim.Process{PID: 7})
			require.Error(t, "a CUDA process", err, simerr.ErrNotReady, "802")
			must(t, sim.SetFabric(1, nvmlsim.FabricCompleted))
			require.Same(t, "once it is completed", before, readFabric(t, l, 1))
			must(t, sim.AddProcess(1, nvmlsim.Process{PID: 7}))
		})
	}
}

func TestACliqueThatChanges(t *testing.T) {
	sim := simulate(t, "gb200")
	l := nvml.New(sim.NVML())
	must(t, sim.SetClique(2, 5))
	if got := readFabric(t, l, 2).Fabric.CliqueID; got != 5 {
		t.Errorf("clique %d, want 5", got)
	}
	require.Error(t, "a clique within one machine", simulate(t, "dgx-h100").SetClique(2, 5), simerr.ErrNotSupported)
}

func TestAFabricThatIsNotReportedIsAbsent(t *testing.T) {
	sim := simulate(t, "gb200")
	lib := withoutSymbol{sim.NVML(), "nvmlDeviceGetGpuFabricInfo"}
	require.Same(t, "an old library", fabricOf{}, readFabric(t, nvml.New(lib), 0))
	fail(t, sim, "DeviceGetGpuFabricInfo", 0, gonvml.ERROR_NOT_SUPPORTED)
	require.Same(t, "not supported", fabricOf{}, readFabric(t, nvml.New(sim.NVML()), 0))
}
