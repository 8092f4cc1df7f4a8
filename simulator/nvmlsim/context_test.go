// SPDX-License-Identifier: Apache-2.0

package nvmlsim_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// Measured by NVIDIA (188) and by an operator (108) with release 615, and on an H200 (132) with
// release 580.
func TestThePercentageOfAClientInMultiprocessors(t *testing.T) {
	for _, tc := range []struct {
		capability, all int
		percentage      float64
		want            int
	}{
		{12, 188, 25, 46},
		{12, 188, 50, 94},
		{12, 188, 75, 140},
		{12, 188, 100, 188},
		{8, 108, 50, 54},
		{9, 132, 2, 8},
		{9, 132, 12, 14},
		{9, 132, 25, 32},
		{9, 132, 50, 66},
		{7, 40, 1, 2},
		{7, 1, 100, 1},
	} {
		d := nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: tc.capability}, Multiprocessors: tc.all}
		if got := d.MPSMultiprocessors(tc.percentage); got != tc.want {
			t.Errorf("%g %% of %d: %d, want %d", tc.percentage, tc.all, got, tc.want)
		}
	}
}

// Measured on an H200 with release 580: the limit of a client of MPS less its free memory at
// its start.
func TestTheContextOfAClientInMiB(t *testing.T) {
	h200 := nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}, Multiprocessors: 132}
	for multiprocessors, want := range map[int]uint64{8: 58, 14: 80, 32: 145, 66: 271, 132: 514} {
		if got := h200.ContextBytes(multiprocessors) >> 20; got < want-1 || got > want+1 {
			t.Errorf("with %d multiprocessors: %d MiB, want %d", multiprocessors, got, want)
		}
	}
}
