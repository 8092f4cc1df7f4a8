// SPDX-License-Identifier: Apache-2.0

// Package hardwareflag validates the flags --hardware and --sim-state, which our
// programs have in common.
package hardwareflag

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Validate returns an error if --hardware is neither nvml nor a model of the
// simulator. It also returns one for a model in a program without a simulator, and
// for --sim-state with real hardware.
func Validate(hardware, simState string, hasSimulator bool) error {
	kind, model, _ := strings.Cut(hardware, ":")
	switch {
	case hardware != "nvml" && (kind != "sim" || model == ""):
		return fmt.Errorf("--hardware=%s: %w: want nvml, sim:MODEL or sim:FILE.yaml", hardware, gpu.ErrInvalid)
	case kind == "sim" && !hasSimulator:
		return fmt.Errorf("--hardware=%s: %w: this program is built without the simulator; use the one that is built with the tag sim: from .build/bin/sim after `make build`, or from the image whose name ends with -sim", hardware, gpu.ErrInvalid)
	case kind != "sim" && simState != "":
		return fmt.Errorf("--sim-state=%s: %w: only simulated hardware (--hardware=sim:MODEL) has it", simState, gpu.ErrInvalid)
	}
	return nil
}
