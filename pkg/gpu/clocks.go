// SPDX-License-Identifier: Apache-2.0

package gpu

// Clocks is the clock of a GPU's SMs, and the reasons why it is not at its highest.
type Clocks struct {
	SMMHz    int
	MaxSMMHz int
	// Reasons are in NVML's order; none if nothing reduces the clock.
	Reasons []ClockReason
}

// ClockReason is a reason why the clocks of a GPU are below their maximum.
type ClockReason string

// The reasons of NVML.
const (
	ClockGPUIdle          ClockReason = "gpu-idle"
	ClockApplications     ClockReason = "application-clocks"
	ClockPowerCap         ClockReason = "sw-power-cap"
	ClockHWSlowdown       ClockReason = "hw-slowdown"
	ClockSyncBoost        ClockReason = "sync-boost"
	ClockThermal          ClockReason = "sw-thermal-slowdown"
	ClockHWThermal        ClockReason = "hw-thermal-slowdown"
	ClockPowerBrake       ClockReason = "hw-power-brake"
	ClockDisplay          ClockReason = "display-clocks"
	ClockBoardLimit       ClockReason = "board-limit"
	ClockReliabilityLimit ClockReason = "reliability"
)
