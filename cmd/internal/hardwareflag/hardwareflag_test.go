// SPDX-License-Identifier: Apache-2.0

package hardwareflag

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestValidateNamesTheFlagAndTheRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		hardware, simState string
		hasSimulator       bool
		want               string // what the error begins with; empty for none
	}{
		"real hardware":               {hardware: "nvml"},
		"a model":                     {hardware: "sim:t4", hasSimulator: true},
		"a model with a state":        {hardware: "sim:t4", simState: "/x", hasSimulator: true},
		"unknown hardware":            {hardware: "amd", want: "--hardware=amd: invalid: want nvml, sim:MODEL or sim:FILE.yaml"},
		"a simulator without a model": {hardware: "sim:", want: "--hardware=sim:: invalid: want nvml, sim:MODEL or sim:FILE.yaml"},
		"a model without a simulator": {hardware: "sim:t4", want: "--hardware=sim:t4: invalid: this program is built without the simulator; use the one that is built with the tag sim: "},
		"a state of real hardware":    {hardware: "nvml", simState: "/x", hasSimulator: true, want: "--sim-state=/x: invalid: only simulated hardware"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate(tc.hardware, tc.simState, tc.hasSimulator)
			if tc.want == "" {
				if err != nil {
					t.Errorf("error %v, want none", err)
				}
				return
			}
			if !errors.Is(err, gpu.ErrInvalid) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error %v, want one that begins %q", err, tc.want)
			}
		})
	}
}
