// SPDX-License-Identifier: Apache-2.0

package use

import (
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// ExternalHolder returns the pod that has the device through a device plugin, or
// "". The plugin may also have allocated a device of the same GPU that excludes it.
func ExternalHolder(g gpu.GPU, name kind.Name) string {
	if g.ExternalPod != "" {
		return g.ExternalPod
	}
	_, place, known := name.FindIn(g.MIG)
	for _, p := range g.MIG.Partitions {
		if p.ExternalPod != "" && (!known || place.Overlaps(p.Placement)) {
			return p.ExternalPod
		}
	}
	return ""
}
