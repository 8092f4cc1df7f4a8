// SPDX-License-Identifier: Apache-2.0

package use

import (
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// ExternalHolder returns the pod that has the device, or a device of the same GPU
// that excludes it, through a device plugin; "" if there is none.
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
