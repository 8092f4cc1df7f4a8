// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Gauges returns the use, the temperature and the power of the GPU at the address. It waits
// two seconds for the GPU. Errors are the same as from [Library.Check].
func (l *Library) Gauges(ctx context.Context, address gpu.PCIAddress) (gpu.Gauges, error) {
	lib, err := l.started(ctx)
	if err != nil {
		return gpu.Gauges{}, err
	}
	hasReserved := has(lib, "nvmlDeviceGetMemoryInfo_v2")
	return onGPUWithin(ctx, answerLimit, l, address, "read the use of", func(device nvml.Device) (g gpu.Gauges, err error) {
		if err := readMemoryGauges(device, hasReserved, &g); err != nil {
			return g, err
		}
		use, ret := device.GetUtilizationRates()
		if present, err := optional("read its utilization", ret); err != nil {
			return g, err
		} else if present {
			g.Utilization = new(float64(use.Gpu) / 100)
		}
		degrees, ret := device.GetTemperature(nvml.TEMPERATURE_GPU)
		if present, err := optional("read its temperature", ret); err != nil {
			return g, err
		} else if present {
			g.Celsius = new(float64(degrees))
		}
		milliwatts, ret := device.GetPowerUsage()
		if present, err := optional("read its power", ret); err != nil {
			return g, err
		} else if present {
			g.Watts = new(float64(milliwatts) / 1000)
		}
		return g, nil
	})
}

// readMemoryGauges reads the memory of a GPU. Drivers before release 510 count reserved memory
// as used.
func readMemoryGauges(device nvml.Device, hasReserved bool, g *gpu.Gauges) error {
	if hasReserved {
		memory, ret := device.GetMemoryInfo_v2()
		present, err := optional("read its memory", ret)
		if err != nil {
			return err
		}
		if present {
			g.MemoryUsedBytes, g.MemoryBytes = &memory.Used, &memory.Total
			return nil
		}
	}
	memory, ret := device.GetMemoryInfo()
	present, err := optional("read its memory", ret)
	if present {
		g.MemoryUsedBytes, g.MemoryBytes = &memory.Used, &memory.Total
	}
	return err
}
