// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// Temperature in °C and power in mW of every GPU, idle and with processes.
const (
	idleCelsius, busyCelsius       = 35, 60
	idleMilliwatts, busyMilliwatts = 70_000, 400_000
)

// GetUtilizationRates reports the use of the multiprocessors only. NVML has none in MIG mode.
func (d device) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetUtilizationRates")
	if ret != nvml.SUCCESS {
		return nvml.Utilization{}, ret
	}
	if c.gpu.MIGMode {
		return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
	}
	percent := 0
	for _, p := range c.gpu.Processes {
		percent += p.SMPercent
	}
	return nvml.Utilization{Gpu: uint32(min(percent, 100))}, nvml.SUCCESS
}

// GetTemperature reports the temperature of the chip.
func (d device) GetTemperature(sensor nvml.TemperatureSensors) (uint32, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetTemperature")
	switch {
	case ret != nvml.SUCCESS:
		return 0, ret
	case sensor != nvml.TEMPERATURE_GPU:
		return 0, nvml.ERROR_INVALID_ARGUMENT
	case len(c.gpu.Processes) == 0:
		return idleCelsius, nvml.SUCCESS
	}
	return busyCelsius, nvml.SUCCESS
}

// GetPowerUsage returns milliwatts.
func (d device) GetPowerUsage() (uint32, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetPowerUsage")
	switch {
	case ret != nvml.SUCCESS:
		return 0, ret
	case len(c.gpu.Processes) == 0:
		return idleMilliwatts, nvml.SUCCESS
	}
	return busyMilliwatts, nvml.SUCCESS
}
