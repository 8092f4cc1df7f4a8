// SPDX-License-Identifier: Apache-2.0

package nvmlsim_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// Measured by NVIDIA (188) and by an operator (108) with release 615.
func TestThePercentageOfAClientInMultiprocessors(t *testing.T) {
	for _, tc := range []struct {
		all        int
		percentage float64
		want       int
	}{
		{188, 25, 46},
		{188, 50, 94},
		{188, 75, 140},
		{188, 100, 188},
		{108, 50, 54},
		{40, 1, 2},
		{1, 100, 1},
	} {
		if got := nvmlsim.MPSMultiprocessors(tc.all, tc.percentage); got != tc.want {
			t.Errorf("%g %% of %d: %d, want %d", tc.percentage, tc.all, got, tc.want)
		}
	}
}
