// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
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
	units.Total = max(catalog.MostSlices(all, all), units.Used)
	return &units
}

// ComputeText returns the promised compute of the GPU, its used units, or a dash.
func (g GPU) ComputeText() string {
	switch {
	case !g.isPublished():
		return "-"
	case g.Units != nil:
		return g.bounded(false, g.Units.String())
	default:
		return g.bounded(g.ComputePromised == 0, fmt.Sprintf("%d%%", g.ComputePromised))
	}
}
