// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Clocks returns the clocks of the GPU at the address. It waits two seconds for the GPU.
// The error wraps [gpu.ErrNotSupported] with drivers before release 535. Other errors are
// the same as from [Library.Check].
func (l *Library) Clocks(ctx context.Context, address gpu.PCIAddress) (gpu.Clocks, error) {
	lib, err := l.started(ctx)
	if err != nil {
		return gpu.Clocks{}, err
	}
	if !has(lib, "nvmlDeviceGetCurrentClocksEventReasons") {
		return gpu.Clocks{}, fmt.Errorf("read the clocks of GPU at %s: %w: the driver is older than release 535", address, gpu.ErrNotSupported)
	}
	return onGPUWithin(ctx, answerLimit, l, address, "read the clocks of", readClocks)
}

func readClocks(device nvml.Device) (gpu.Clocks, error) {
	now, ret := device.GetClockInfo(nvml.CLOCK_SM)
	if err := check("read its SM clock", ret); err != nil {
		return gpu.Clocks{}, err
	}
	most, ret := device.GetMaxClockInfo(nvml.CLOCK_SM)
	if err := check("read its highest SM clock", ret); err != nil {
		return gpu.Clocks{}, err
	}
	bits, ret := device.GetCurrentClocksEventReasons()
	if err := check("read the reasons of its clocks", ret); err != nil {
		return gpu.Clocks{}, err
	}
	clocks := gpu.Clocks{SMMHz: int(now), MaxSMMHz: int(most)}
	for i, reason := range clockReasons {
		if bits&(1<<i) != 0 {
			clocks.Reasons = append(clocks.Reasons, reason)
		}
	}
	return clocks, nil
}

// clockReasons are the reasons of NVML, each at the number of its bit.
var clockReasons = []gpu.ClockReason{
	gpu.ClockGPUIdle, gpu.ClockApplications, gpu.ClockPowerCap, gpu.ClockHWSlowdown, gpu.ClockSyncBoost, gpu.ClockThermal,
	gpu.ClockHWThermal, gpu.ClockPowerBrake, gpu.ClockDisplay, gpu.ClockBoardLimit, gpu.ClockReliabilityLimit,
}
