// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// gpuPower charges claims for the energy of the GPUs up to now. It returns the sums and
// the clocks of each GPU. A GPU that does not answer is left out, and its energy is charged when
// it answers again.
func (a *agent) gpuPower() telemetry.Power {
	health := a.known.state.Snapshot().Health()
	readings := readAll(health, "power", a.node.hardware.Power)
	var power telemetry.Power
	joules := map[gpu.PCIAddress]float64{}
	for i, d := range health {
		if r := readings[i]; r.Joules != nil {
			joules[d.Name.Address] = *r.Joules
		}
		if clocks := readings[i].Clocks; clocks != nil {
			g := telemetry.GPUClocks{Device: d.Name.String(), UUID: d.UUID, Limited: map[string]bool{}}
			for _, reason := range gpu.ClockReasons() {
				g.Limited[string(reason)] = slices.Contains(clocks.Reasons, reason)
			}
			power.GPUs = append(power.GPUs, g)
		}
	}
	power.Joules = a.observers.accounts.Meter.AddEnergy(joules)
	return power
}
