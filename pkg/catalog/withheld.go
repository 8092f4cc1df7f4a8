// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Withheld returns the GPUs that cannot be used as the node offers them, each with
// the reason.
func (c Catalog) Withheld(node gpu.Node) []string {
	var reasons []string
	for _, g := range node.GPUs {
		why := c.computeMode(g)
		if c.inputs.Offer.Partitions() && !c.inputs.MIG.Static {
			check := c.inputs.MIG.check
			if c.inputs.Partitions != nil {
				check = func(g gpu.GPU) error { return c.inputs.Partitions.withheld(g, c.inputs.MIG.AllowReset) }
			}
			if err := check(g); err != nil {
				why = append(why, err.Error())
			}
		}
		for _, k := range kind.Divided() {
			if err := k.Check(g, c.unitAmounts(k, g)); err != nil && c.inputs.Offer.Has(k) && !c.inputs.Exclusive && !c.inputs.NoCounters {
				why = append(why, err.Error())
			}
		}
		for _, reason := range why {
			reasons = append(reasons, fmt.Sprintf("GPU at %s: %s", g.Address, reason))
		}
	}
	return reasons
}

// computeMode returns the problems of the GPU's compute mode with the uses that the
// node offers.
func (c Catalog) computeMode(g gpu.GPU) []string {
	var why []string
	check := func(k kind.Kind, sharing use.Sharing) {
		for _, p := range use.Check(use.GPU{GPU: g}, c.inputs.Shares.MPS, kind.Name{Kind: k, Address: g.Address}, sharing) {
			if reason := p.Err.Error(); p.Aspect == use.ComputeMode && !slices.Contains(why, reason) {
				why = append(why, reason)
			}
		}
	}
	check(kind.GPU, use.Alone)
	if c.inputs.Offer.Share() && !c.inputs.Exclusive && !c.inputs.Shares.byMPS(g) {
		check(kind.GPU, use.Plain)
	}
	for _, k := range kind.Divided() {
		if c.inputs.Offer.Has(k) && !c.inputs.Exclusive {
			check(k, unitSharing(k))
		}
	}
	return why
}
