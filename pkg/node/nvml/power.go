// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Power returns the energy that the GPU at the address has used, and its clocks. A value
// that the driver does not report is absent. It waits two seconds for the GPU. Errors are
// the same as from [Library.Check].
func (l *Library) Power(ctx context.Context, address gpu.PCIAddress) (gpu.Power, error) {
	lib, err := l.started(ctx)
	if err != nil {
		return gpu.Power{}, err
	}
	hasReasons := has(lib, "nvmlDeviceGetCurrentClocksEventReasons")
	return onGPUWithin(ctx, answerLimit, l, address, "read the energy and the clocks of", func(device nvml.Device) (p gpu.Power, err error) {
		millijoules, ret := device.GetTotalEnergyConsumption()
		switch err := check("read the energy", ret); {
		case err == nil:
			p.Joules = new(float64(millijoules) / 1000)
		case !errors.Is(err, gpu.ErrNotSupported):
			return p, err
		}
		if !hasReasons {
			return p, nil
		}
		switch clocks, err := readClocks(device); {
		case err == nil:
			p.Clocks = &clocks
		case !errors.Is(err, gpu.ErrNotSupported):
			return p, err
		}
		return p, nil
	})
}
