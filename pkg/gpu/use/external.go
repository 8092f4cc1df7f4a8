// SPDX-License-Identifier: Apache-2.0

package use

import "github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"

// ExternalHolder returns the pod that has the device through a device plugin, or
// "". The plugin may also have allocated a device of the same GPU that excludes it. If
// several pods share one, it returns the first.
func (g GPU) ExternalHolder(name kind.Name) string {
	for _, allocation := range g.External {
		if allocation.IsOf(g.GPU) {
			return allocation.Pod
		}
	}
	_, place, known := name.FindIn(g.MIG)
	for _, p := range g.MIG.Partitions {
		for _, allocation := range g.External {
			if p.UUID != "" && allocation.Device == p.UUID && (!known || place.Overlaps(p.Placement)) {
				return allocation.Pod
			}
		}
	}
	return ""
}
