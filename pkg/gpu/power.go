// SPDX-License-Identifier: Apache-2.0

package gpu

// Power is the energy that a GPU has used, and its clocks.
type Power struct {
	// Joules that the GPU has used since its driver was loaded. It is nil if the GPU has
	// no such counter.
	Joules *float64
	// Clocks of the GPU; nil if the driver does not report the reasons of its clocks.
	Clocks *Clocks
}

// ClockReasons returns the reasons for which the clocks of a working GPU are reduced, in
// NVML's order.
func ClockReasons() []ClockReason {
	return []ClockReason{
		ClockApplications, ClockPowerCap, ClockHWSlowdown, ClockSyncBoost, ClockThermal, ClockHWThermal, ClockPowerBrake,
		ClockDisplay, ClockBoardLimit, ClockReliabilityLimit,
	}
}
