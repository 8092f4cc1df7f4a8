// SPDX-License-Identifier: Apache-2.0

package use

import (
	"errors"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// CheckPartitioning returns an error if the driver cannot partition the GPU on demand.
// allowReset is set if the driver may reset GPUs.
func CheckPartitioning(g gpu.GPU, allowReset bool) error {
	switch {
	case !g.MIG.Capable:
		return errors.New("it has no MIG")
	case len(g.MIG.Profiles) == 0:
		return errors.New("the driver reports no MIG profiles of it while MIG mode is off; switch it on with nvidia-smi -mig 1")
	case g.MIGModeNeedsReset() && !g.MIG.Enabled && !allowReset:
		return errors.New("its MIG mode changes with a reset only; switch it on with nvidia-smi -mig 1, or allow resets with --mig-allow-reset")
	default:
		return nil
	}
}
