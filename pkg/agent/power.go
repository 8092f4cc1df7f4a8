// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/telemetry"
)

// gpuPower charges claims for the energy of the GPUs up to now. It returns the sums and
// the clocks of each GPU. It reads all GPUs at once. A GPU that does not answer is left out, and
// its energy is charged when it answers again.
func (a *agent) gpuPower() telemetry.Power {
	ctx, cancel := context.WithTimeout(context.Background(), usagePatience)
	defer cancel()
	health := a.state.Snapshot().Health()
	readings := make([]gpu.Power, len(health))
	var all sync.WaitGroup
	for i, d := range health {
		all.Go(func() {
			var err error
			if readings[i], err = a.readPower(ctx, d.Name.Address); err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot read the power of a GPU", "device", d.Name, "err", err)
			}
		})
	}
	all.Wait()
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
	power.Joules = a.accounts.Meter.AddEnergy(joules)
	return power
}
