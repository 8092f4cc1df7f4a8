// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A ceiling that the record lost would never be removed, and hold for the next claim.
func TestADaemonMayHaveTheHighestCeilingsThatItWasEverToHave(t *testing.T) {
	for name, c := range map[string]struct{ had, wanted, want gpu.MPSDaemon }{
		"higher ones": {
			gpu.MPSDaemon{ThreadPercentage: 25, MemoryLimits: []uint64{1, 2}},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
		},
		"lower ones": {
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
			gpu.MPSDaemon{ThreadPercentage: 25, MemoryLimits: []uint64{1, 2}},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
		},
		"none for one of two devices": {
			gpu.MPSDaemon{MemoryLimits: []uint64{3, 4}},
			gpu.MPSDaemon{MemoryLimits: []uint64{0, 5}},
			gpu.MPSDaemon{MemoryLimits: []uint64{3, 5}},
		},
		"none": {
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3}},
			gpu.MPSDaemon{},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3}},
		},
		"the first ones": {
			gpu.MPSDaemon{},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
			gpu.MPSDaemon{ThreadPercentage: 50, MemoryLimits: []uint64{3, 4}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "ceilings", c.want, eitherCeilings(c.had, c.wanted))
		})
	}
}
