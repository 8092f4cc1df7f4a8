// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const gi, mi = 1 << 30, 1 << 20

func TestLimitsOfAShare(t *testing.T) {
	for name, c := range map[string]struct {
		size shareSize
		want share.Client
	}{
		"a quarter":                              {shareSize{memory: 20 * gi, all: 80 * gi}, share.Client{Processes: 1, ThreadPercentage: 25, MemoryLimit: 20 * gi}},
		"compute that the claim named":           {shareSize{memory: 20 * gi, all: 80 * gi, compute: 60}, share.Client{Processes: 1, ThreadPercentage: 60, MemoryLimit: 20 * gi}},
		"bursting":                               {shareSize{memory: 20 * gi, all: 80 * gi, burst: true}, share.Client{Processes: 1, MemoryLimit: 20 * gi}},
		"bursting in vain, as compute was named": {shareSize{memory: 20 * gi, all: 80 * gi, compute: 10, burst: true}, share.Client{Processes: 1, ThreadPercentage: 10, MemoryLimit: 20 * gi}},
		"among four": {
			shareSize{memory: 20 * gi, all: 80 * gi, compute: 50, processes: 4},
			share.Client{Processes: 4, ThreadPercentage: 12, MemoryLimit: 5 * gi},
		},
		"in whole Mi":                    {shareSize{memory: 1000 * mi, all: 80 * gi, processes: 3}, share.Client{Processes: 3, ThreadPercentage: 1, MemoryLimit: 333 * mi}},
		"one percent at least":           {shareSize{memory: gi, all: 180 * gi, processes: 2}, share.Client{Processes: 2, ThreadPercentage: 1, MemoryLimit: gi / 2}},
		"everything":                     {shareSize{memory: 80 * gi, all: 80 * gi}, share.Client{Processes: 1, ThreadPercentage: 100, MemoryLimit: 80 * gi}},
		"as much as the smallest can be": {shareSize{memory: 2 * mi, all: 80 * gi, processes: 2}, share.Client{Processes: 2, ThreadPercentage: 1, MemoryLimit: mi}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "limits", c.want, limitsOf(c.size))
		})
	}
}

// However a share is divided: all its processes together take no more than the share, and
// less than a step of it is lost for each of them.
func TestTheSumOfLimitsHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shareSize{
			memory:  rapid.Uint64Range(1, 192<<10).Draw(t, "Mi") * mi,
			all:     192 * gi,
			compute: rapid.IntRange(0, 100).Draw(t, "compute"),
		}
		s.processes = rapid.IntRange(1, gpu.MPSClientsOfShare(gpu.MPSMaxClients, s.memory, s.all)).Draw(t, "processes")
		c := limitsOf(s)
		n := uint64(s.processes)
		if c.MemoryLimit == 0 || c.MemoryLimit%mi != 0 || n*c.MemoryLimit > s.memory || n*(c.MemoryLimit+mi) <= s.memory {
			t.Fatalf("%d processes of %d bytes in a share of %d", n, c.MemoryLimit, s.memory)
		}
		if c.ThreadPercentage < 1 || s.compute >= s.processes && c.ThreadPercentage*s.processes > s.compute {
			t.Fatalf("%d processes of %d%% in a share of %d%%", n, c.ThreadPercentage, s.compute)
		}
	})
}
