// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// idleClock is the SM clock, in MHz, of a GPU that computes nothing.
const idleClock = 345

// highestClocks are the highest SM clocks, in MHz, of the server GPUs of each architecture.
var highestClocks = map[string]uint32{"Volta": 1530, "Turing": 1590, "Ampere": 1410, "Ada Lovelace": 2520, "Hopper": 1980, "Blackwell": 1965}

// highestClock returns the highest SM clock of a kind of GPU, in MHz. It is 0 if it is unknown.
func (k *Kind) highestClock() uint32 {
	if k.SMClockMHz > 0 {
		return k.SMClockMHz
	}
	return highestClocks[k.Architecture]
}

// GetClockInfo reports the SM clock only. MIG devices have none of their own.
func (d device) GetClockInfo(kind nvml.ClockType) (uint32, nvml.Return) {
	return d.clock("DeviceGetClockInfo", kind, func(c call) uint32 {
		if len(c.gpu.Processes) == 0 {
			return idleClock
		}
		return c.spec.kind.highestClock()
	})
}

func (d device) GetMaxClockInfo(kind nvml.ClockType) (uint32, nvml.Return) {
	return d.clock("DeviceGetMaxClockInfo", kind, func(c call) uint32 { return c.spec.kind.highestClock() })
}

func (d device) clock(method string, kind nvml.ClockType, clock func(call) uint32) (uint32, nvml.Return) {
	c, ret := d.enterGPU(method)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if kind != nvml.CLOCK_SM || c.spec.kind.highestClock() == 0 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return clock(c), nvml.SUCCESS
}

func (d device) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetCurrentClocksEventReasons")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if len(c.gpu.Processes) == 0 {
		return nvml.ClocksEventReasonGpuIdle, nvml.SUCCESS
	}
	return nvml.ClocksEventReasonNone, nvml.SUCCESS
}
