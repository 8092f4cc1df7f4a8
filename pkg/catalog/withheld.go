package catalog

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Withheld says what the node offers and does not give of which GPU, and why.
func (c Catalog) Withheld(node gpu.Node) []string {
	var reasons []string
	for _, g := range node.GPUs {
		for _, why := range append(c.modeInTheWay(g), c.notCut(g)) {
			if why != "" {
				reasons = append(reasons, fmt.Sprintf("GPU at %s: %s", g.Address, why))
			}
		}
	}
	return reasons
}

func (c Catalog) notCut(g gpu.GPU) string {
	if !c.Offer.MIG || c.MIG.Static {
		return ""
	}
	return c.MIG.whyNot(g)
}

// modeInTheWay says what the compute mode of the GPU keeps claims from.
func (c Catalog) modeInTheWay(g gpu.GPU) []string {
	back := fmt.Sprintf("change it with nvidia-smi -i %s -c DEFAULT", g.Address)
	switch {
	case g.ComputeMode == gpu.ComputeModeProhibited:
		return []string{"its compute mode Prohibited lets nothing run; " + back}
	case g.ComputeMode != gpu.ComputeModeExclusiveProcess || c.Exclusive:
		return nil
	}
	var why []string
	if c.Offer.Share && !c.Shares.byMPS(g) {
		why = append(why, "its compute mode ExclusiveProcess lets processes share it by MPS only, and there is no MPS for it here; "+back)
	}
	if c.Offer.TimeSlice {
		why = append(why, "its compute mode ExclusiveProcess lets no processes take turns; "+back)
	}
	return why
}
