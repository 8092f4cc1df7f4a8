// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// UnitSlices is the unit of GPUs with MIG devices: compute slices.
const UnitSlices = "slices"

// Units are the parts of a GPU that claims take, in JSON and YAML.
type Units struct {
	// Unit is [UnitSlices], or the capacity that counts the units: "slots" or "seats".
	Unit string `json:"unit"`
	Used int64  `json:"used"`
	// Total is the most that claims can take together.
	Total int64 `json:"total"`
}

// String returns the units as text, such as "6/7 slices".
func (u Units) String() string { return fmt.Sprintf("%d/%d %s", u.Used, u.Total, u.Unit) }

// unitsOf returns the units of a GPU; nil if claims take none of it.
func unitsOf(g fleet.GPU) *Units {
	switch k := kind.Kind(g.Mode); {
	case k.HasUnits():
		return countedUnits(g, k)
	case k.Scope() == kind.ScopePartition:
		return migSlices(g)
	default:
		return nil
	}
}

func countedUnits(g fleet.GPU, k kind.Kind) *Units {
	name := k.Units().Capacity
	units := Units{Unit: string(name)}
	for _, d := range g.Devices {
		if d.Kind == k && d.Published != nil {
			total := d.Published.Capacity[name].Value
			units.Total = max(units.Total, total.Value())
		}
	}
	for d, h := range g.Holders() {
		if d.Kind == k {
			used := h.Result.ConsumedCapacity[name]
			units.Used += used.Value()
		}
	}
	units.Total = max(units.Total, units.Used)
	return &units
}

// migSlices returns the compute slices of a GPU with MIG devices.
func migSlices(g fleet.GPU) *Units {
	units := Units{Unit: UnitSlices}
	var all []kind.Name
	for _, d := range g.Devices {
		name := fleet.NameOf(d.ID.Device)
		if !name.IsPartition() {
			continue
		}
		all = append(all, name)
		if slices.ContainsFunc(d.Holders, func(h fleet.Holder) bool { return !h.Admin() }) {
			units.Used += int64(name.Profile.Slices)
		}
	}
	units.Total = max(mostSlices(all), units.Used)
	return &units
}

// mostSlices returns the most compute slices of placements that can exist together. Their
// names have the first memory slice of each, and not their number. So a memory slice is the
// memory of a profile's compute slice, of the profile with the least.
func mostSlices(all []kind.Name) int64 {
	unit := math.Inf(1)
	for _, n := range all {
		unit = min(unit, float64(n.Profile.MemoryGB)/float64(n.Profile.Slices))
	}
	end := func(n kind.Name) int { return n.Start + max(1, int(math.Round(float64(n.Profile.MemoryGB)/unit))) }
	slices.SortFunc(all, func(a, b kind.Name) int { return cmp.Compare(end(a), end(b)) })
	// most[i] is the result for the first i placements.
	most := make([]int64, len(all)+1)
	for i, n := range all {
		before := i
		for before > 0 && end(all[before-1]) > n.Start {
			before--
		}
		most[i+1] = max(most[i], most[before]+int64(n.Profile.Slices))
	}
	return most[len(all)]
}

// ComputeText returns the promised compute of the GPU, its used units, or a dash.
func (g GPU) ComputeText() string {
	switch {
	case !g.isPublished():
		return "-"
	case g.Partial && g.ComputePromised == 0 && g.Units == nil:
		return "?"
	case g.Partial && g.Units == nil:
		return fmt.Sprintf("≥%d%%", g.ComputePromised)
	case g.Partial:
		return "≥" + g.Units.String()
	case g.Units != nil:
		return g.Units.String()
	}
	return fmt.Sprintf("%d%%", g.ComputePromised)
}
