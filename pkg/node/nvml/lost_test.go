// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"errors"
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
)

// A GPU can be lost without an XID. The first operation that finds it so asks for a scan, and
// later ones do not until the GPU has answered a scan.
func TestAnOperationThatFindsAGPULostAsksForAScan(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx-h100")
	l := nvml.New(sim.NVML())
	address := snapshot(t, l).GPUs[1].Address
	w := watch(t, l)
	lose := func() {
		t.Helper()
		fail(t, sim, "DeviceGetTotalEnergyConsumption", 1, vendor.ERROR_GPU_IS_LOST)
		if _, err := l.Power(t.Context(), address); !errors.Is(err, gpu.ErrLost) {
			t.Fatalf("the power of a lost GPU: %v", err)
		}
	}
	lose()
	w.expect(t, gpu.EventAnswer)
	lose()
	snapshot(t, l)
	lose()
	w.expect(t, gpu.EventAnswer)
	w.ends(t)
}
