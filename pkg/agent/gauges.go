// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// readAll reads all GPUs at once, within the patience of a scrape. The reading of a GPU that
// does not answer is the zero value. The log calls the readings by their name.
func readAll[T any](gpus []state.DeviceHealth, name string, read func(context.Context, gpu.PCIAddress) (T, error)) []T {
	ctx, cancel := context.WithTimeout(context.Background(), usagePatience)
	defer cancel()
	readings := make([]T, len(gpus))
	var reads sync.WaitGroup
	for i, d := range gpus {
		reads.Go(func() {
			reading, err := read(ctx, d.Name.Address)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot read a GPU for the metrics", "reading", name, "device", d.Name, "err", err)
				return
			}
			readings[i] = reading
		})
	}
	reads.Wait()
	return readings
}

// gpuHealth returns the health and the gauges of each GPU for the metrics. A GPU that does not
// answer has no gauges. What is stranded is not known while claims cannot be read.
func (a *agent) gpuHealth() []telemetry.GPUHealth {
	health := a.known.state.Snapshot().Health()
	all := make([]telemetry.GPUHealth, len(health))
	stranded := map[string]catalog.Stranded{}
	if held, err := a.claims.Held(context.Background()); err == nil {
		stranded = usage.Stranded(a.observers.controller.Published(), held)
	}
	for i, gauges := range readAll(health, "use", a.node.hardware.Gauges) {
		d := health[i]
		all[i] = telemetry.GPUHealth{Device: d.Name.String(), UUID: d.UUID, Cause: d.Cause, Gauges: gauges}
		if s, known := stranded[d.Name.String()]; known {
			all[i].Stranded = &s
		}
	}
	return all
}
