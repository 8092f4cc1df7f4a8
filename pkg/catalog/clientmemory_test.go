// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// On an H200 with 143075 steps only 47 shares fitted while their least memory was rounded up.
func TestAsManyLeastSharesFitAsMPSAdmitsClients(t *testing.T) {
	for steps := int64(1); steps < 300_000; steps++ {
		least := clientMemory(steps)
		shares := steps / least
		if shares > gpu.MPSMaxClients || steps >= gpu.MPSMaxClients*gpu.MPSMaxClients && shares < gpu.MPSMaxClients {
			t.Fatalf("%d shares of %d steps fit into %d", shares, least, steps)
		}
		// Least shares have a process each, and one share of the rest as many as it has of 48 parts.
		for k := range shares + 1 {
			if rest := (steps - k*least) * gpu.MPSMaxClients / steps; k+rest > gpu.MPSMaxClients {
				t.Fatalf("%d least shares and the rest of %d steps have %d processes", k, steps, k+rest)
			}
		}
	}
}
