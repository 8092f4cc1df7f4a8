// SPDX-License-Identifier: Apache-2.0

package gpu

import "strconv"

// ExternalAllocation is a GPU or MIG device that a device plugin has allocated to a
// pod. The plugin is one of the node, and not this driver.
type ExternalAllocation struct {
	// Device is the UUID of the GPU or MIG device. It is "nvidiaN", with the minor
	// number N, if the plugin names GPUs by their nodes.
	Device string
	// Pod is the pod that has the device: "namespace/name".
	Pod string
}

// WithExternalAllocations returns the GPU with the pods that use it through a device
// plugin. A pod may use the GPU or a MIG device of it. If several pods share one, it
// names the first.
func (g GPU) WithExternalAllocations(all []ExternalAllocation) GPU {
	partitions := make([]Partition, len(g.MIG.Partitions))
	copy(partitions, g.MIG.Partitions)
	for _, allocation := range all {
		if g.ExternalPod == "" && (allocation.Device == g.UUID || allocation.Device == "nvidia"+strconv.Itoa(g.Minor)) {
			g.ExternalPod = allocation.Pod
		}
		for i, p := range partitions {
			if p.ExternalPod == "" && p.UUID != "" && allocation.Device == p.UUID {
				partitions[i].ExternalPod = allocation.Pod
			}
		}
	}
	if len(partitions) > 0 {
		g.MIG.Partitions = partitions
	}
	return g
}
