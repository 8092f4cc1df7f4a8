// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestMPSLimitsAndMIGResetFollowComputeCapability(t *testing.T) {
	for name, c := range map[string]struct {
		capability gpu.Version
		// limits says whether MPS limits clients, reset whether a change of the
		// MIG mode takes a reset.
		limits, reset bool
	}{
		"unknown":   {gpu.Version{}, false, true},
		"Pascal":    {gpu.Version{Major: 6, Minor: 1}, false, true},
		"Volta":     {gpu.Version{Major: 7, Minor: 0}, true, true},
		"Ampere":    {gpu.Version{Major: 8, Minor: 0}, true, true},
		"Ada":       {gpu.Version{Major: 8, Minor: 9}, true, true},
		"Hopper":    {gpu.Version{Major: 9, Minor: 0}, true, false},
		"Blackwell": {gpu.Version{Major: 10, Minor: 0}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := gpu.GPU{ComputeCapability: c.capability}
			if got := g.MPSLimits(); got != c.limits {
				t.Errorf("MPS limits clients: %t, want %t", got, c.limits)
			}
			if got := g.MIGModeNeedsReset(); got != c.reset {
				t.Errorf("the MIG mode needs a reset: %t, want %t", got, c.reset)
			}
		})
	}
}

func TestMIGDevicesAdmitMPSClientsInProportion(t *testing.T) {
	for _, c := range []struct{ slices, of, want int }{
		{7, 7, 48},
		{3, 7, 20},
		{1, 7, 6},
		{1, 4, 12},
		// A profile whose size is unknown admits one, and an unknown GPU all.
		{0, 7, 1},
		{1, 0, 48},
	} {
		if got := gpu.MPSClients(c.slices, c.of); got != c.want {
			t.Errorf("%d slices of %d admit %d clients, want %d", c.slices, c.of, got, c.want)
		}
	}
}
