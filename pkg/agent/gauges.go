// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/telemetry"
)

// gpuHealth returns the health and the gauges of each GPU for the metrics. It reads all GPUs
// at once. A GPU that does not answer has no gauges.
func (a *agent) gpuHealth() []telemetry.GPUHealth {
	ctx, cancel := context.WithTimeout(context.Background(), usagePatience)
	defer cancel()
	health := a.state.Snapshot().Health()
	all := make([]telemetry.GPUHealth, len(health))
	var reads sync.WaitGroup
	for i, d := range health {
		all[i] = telemetry.GPUHealth{Device: d.Name.String(), UUID: d.UUID, Cause: d.Reason}
		reads.Go(func() {
			gauges, err := a.readGauges(ctx, d.Name.Address)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot read the use of a GPU", "device", d.Name, "err", err)
				return
			}
			all[i].Gauges = telemetry.Gauges(gauges)
		})
	}
	reads.Wait()
	return all
}
