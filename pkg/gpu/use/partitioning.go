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
	case len(g.MIG.Profiles) == 0 && g.MIG.Enabled:
		return errors.New("its MIG mode is on, and the driver reports no MIG profiles of it; see what nvidia-smi mig -lgip says on the node, and restart the agent when it lists them")
	case len(g.MIG.Profiles) == 0 && !g.MIG.PendingEnabled:
		return errors.New("the driver reports no MIG profiles of it while MIG mode is off; switch it on with nvidia-smi -mig 1")
	case !g.MIG.Enabled && g.MIG.PendingEnabled && (len(g.MIG.Profiles) == 0 || !allowReset):
		return errors.New("its MIG mode waits for a reset; when no program uses the GPU, run nvidia-smi --gpu-reset, or restart the node")
	case g.MIGModeNeedsReset() && !g.MIG.Enabled && !allowReset:
		return errors.New("its MIG mode changes with a reset only; switch it on with nvidia-smi -mig 1, or allow resets with --mig-allow-reset")
	default:
		return nil
	}
}
