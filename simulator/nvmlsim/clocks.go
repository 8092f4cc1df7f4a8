// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"os"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

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
		if c.gpu.Slow != 0 {
			return c.spec.kind.highestClock() / 2
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
		return nvml.ClocksEventReasonGpuIdle | c.gpu.Slow, nvml.SUCCESS
	}
	return c.gpu.Slow, nvml.SUCCESS
}

// slowReasons are the reasons for slow clocks that a fault can have. The keys are NVML's
// names without their prefix.
var slowReasons = map[string]uint64{
	"SwPowerCap": nvml.ClocksEventReasonSwPowerCap, "SwThermalSlowdown": nvml.ClocksEventReasonSwThermalSlowdown,
	"HwSlowdown": nvml.ClocksThrottleReasonHwSlowdown, "HwThermalSlowdown": nvml.ClocksThrottleReasonHwThermalSlowdown,
	"HwPowerBrakeSlowdown": nvml.ClocksThrottleReasonHwPowerBrakeSlowdown,
}

// SlowDown reduces the clocks of a GPU for a reason. The reason is NVML's name without its
// prefix, such as HwThermalSlowdown.
func (s *Sim) SlowDown(index int, reason string) error {
	bit, ok := slowReasons[reason]
	if !ok {
		return fmt.Errorf("slow clocks because of %q: %w: want one of %s", reason, simerr.ErrInvalid, known(slowReasons))
	}
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		g.Slow = bit
		return nil
	})
}

// GetTotalEnergyConsumption reports the energy of an idle GPU since the machine was booted, in
// millijoules: the simulator does not know how long earlier programs computed. Like the vendor's it begins at 0 then, and GPUs before Volta have none.
func (d device) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetTotalEnergyConsumption")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	info, err := os.Stat(d.library.sim.tree().path("proc/sys/kernel/random/boot_id"))
	if err != nil || c.spec.kind.highestClock() == 0 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return idleMilliwatts * uint64(max(time.Since(info.ModTime()), 0).Milliseconds()) / 1000, nvml.SUCCESS
}
