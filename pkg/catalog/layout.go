// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Layout is the partitions of a node's GPUs by a configuration. A GPU of the layout is
// published as partitions at fixed placements. They never overlap, so they need no
// counters. The zero value has no GPUs: all are whole. It is immutable.
type Layout struct {
	name string
	gpus map[gpu.PCIAddress]fixedParts
	// whole are the GPUs that the layout leaves whole.
	whole map[gpu.PCIAddress]bool
}

// fixedParts are the partitions of a GPU, large ones first. They are empty if they are
// created on demand, and nil if they are not known.
type fixedParts []part

// Layout returns the node's layout according to the offer's configuration. It returns
// nil for an offer without a configuration. The error for a configuration that is not
// valid for the node, or whose partitions do not fit on a GPU, wraps [gpu.ErrInvalid].
func (o MIGOffer) Layout(node gpu.Node) (*Layout, error) {
	if o.Config == nil || o.Static {
		return nil, nil
	}
	choices, err := o.Config.Select(node)
	if err != nil {
		return nil, err
	}
	l := newLayout(o.Config.Name)
	for _, g := range node.GPUs {
		choice := choices[g.Address]
		if !choice.MIG {
			l.whole[g.Address] = true
			continue
		}
		parts, err := place(g, choice.Devices)
		if err != nil {
			return nil, fmt.Errorf("MIG configuration %q: GPU at %s: %w", o.Config.Name, g.Address, err)
		}
		l.gpus[g.Address] = parts
	}
	return l, nil
}

func newLayout(name string) *Layout {
	return &Layout{name: name, gpus: map[gpu.PCIAddress]fixedParts{}, whole: map[gpu.PCIAddress]bool{}}
}

// Keeps reports whether the layout has the MIG device, or may have it: the partitions of
// its GPU are not known.
func (l *Layout) Keeps(name kind.Name) bool {
	if l == nil {
		return false
	}
	parts := l.gpus[name.Address]
	return parts == nil && !l.whole[name.Address] || slices.ContainsFunc(parts, func(p part) bool {
		return p.profile.Profile == name.Profile && p.placement.Start == name.Start
	})
}

// lacks reports whether the GPU is not in the layout, neither whole nor in parts. So it
// is with a GPU that is newer than the record of the layout.
func (l *Layout) lacks(address gpu.PCIAddress) bool {
	if l == nil {
		return false
	}
	_, isPart := l.gpus[address]
	return !isPart && !l.whole[address]
}

// covers reports whether the GPU is in the layout and can be partitioned.
func (l *Layout) covers(g gpu.GPU, allowReset bool) bool {
	_, isPart := l.gpus[g.Address]
	return isPart && use.CheckPartitioning(g, allowReset) == nil
}

// fixes reports whether the layout fixes the partitions of the GPU.
func (l *Layout) fixes(g gpu.GPU) bool { return l != nil && len(l.gpus[g.Address]) > 0 }

// partsOf returns the partitions of the GPU, large ones first, with the memory that they
// have now.
func (l *Layout) partsOf(g gpu.GPU) []part {
	var parts []part
	for _, p := range l.gpus[g.Address] {
		parts = append(parts, find(g, p.name(g))...)
	}
	return parts
}

// place returns placements for the MIG devices that the hardware admits together. The
// result depends on the profiles of the GPU only, so that a restarted agent chooses the
// same ones. If the driver reports no profiles, it returns none.
func place(g gpu.GPU, devices []migconfig.Devices) (fixedParts, error) {
	switch {
	case len(devices) == 0:
		return fixedParts{}, nil
	case len(g.MIG.Profiles) == 0:
		return nil, nil
	}
	var profiles []gpu.ProfileInfo
	for _, d := range devices {
		i := slices.IndexFunc(g.MIG.Profiles, func(p gpu.ProfileInfo) bool { return p.Profile == d.Profile })
		if i < 0 {
			return nil, fmt.Errorf("%w: it has no profile %s; it has %s", gpu.ErrInvalid, d.Profile, profileNames(g))
		}
		if info := g.MIG.Profiles[i]; d.Count > info.MaxInstances {
			return nil, fmt.Errorf("%w: %d MIG devices %s do not fit; %d do", gpu.ErrInvalid, d.Count, d.Profile, info.MaxInstances)
		}
		profiles = append(profiles, slices.Repeat(g.MIG.Profiles[i:i+1], d.Count)...)
	}
	slices.SortStableFunc(profiles, func(a, b gpu.ProfileInfo) int { return cmp.Compare(memorySize(b), memorySize(a)) })
	var best fixedParts
	for n := range profiles {
		parts := search(g, nil, profiles[:n+1])
		if parts == nil {
			return nil, fmt.Errorf("%w: %s has no place with %s", gpu.ErrInvalid, profiles[n].Profile, describeParts(best))
		}
		best = parts
	}
	return best, nil
}

// search adds a placement for each profile to the parts; nil if the hardware does not
// admit them. Equal profiles have ascending placements, which avoids equal sets.
func search(g gpu.GPU, parts fixedParts, profiles []gpu.ProfileInfo) fixedParts {
	if len(profiles) == 0 {
		return parts
	}
	next := profiles[0]
	first := 0
	if last := len(parts) - 1; last >= 0 && parts[last].profile.Profile == next.Profile {
		first = parts[last].placement.Start + 1
	}
	for _, placement := range next.Placements {
		if placement.Start < first {
			continue
		}
		more := append(slices.Clip(parts), part{profile: next, placement: placement})
		if !admits(g, more, nil) {
			continue
		}
		if all := search(g, more, profiles[1:]); all != nil {
			return all
		}
	}
	return nil
}

// admits reports whether the hardware admits the parts together with the foreign
// partitions.
func admits(g gpu.GPU, parts []part, foreign []gpu.Partition) bool {
	for i, p := range parts {
		if slices.ContainsFunc(parts[:i], func(q part) bool { return p.placement.Overlaps(q.placement) }) ||
			slices.ContainsFunc(foreign, func(f gpu.Partition) bool { return p.placement.Overlaps(f.Placement) }) {
			return false
		}
	}
	return !slices.ContainsFunc(rules(g.MIG.Profiles), func(r rule) bool {
		taken := r.takenBy(g.MIG.Profiles, foreign)
		for _, p := range parts {
			taken += r.taken(p.profile)
		}
		return taken > r.total
	})
}

// admitted returns the partitions of the layout that fit with all devices that claims
// hold. The hardware decides, and small partitions are first. Without counters, the
// scheduler could allocate any other one together with a held device. So claims for
// other forms of the GPU must end before its partitions are published.
func (l *Layout) admitted(g gpu.GPU, held Held) []part {
	if held.hasWhole(g.Address) {
		return nil
	}
	var admitted []part
	present := heldParts(g, held)
	for _, p := range l.partsOf(g) {
		_, taken := held[p.name(g)]
		if !taken && !admits(g, append(slices.Clip(present), p), g.MIG.Partitions) {
			continue
		}
		if !taken {
			present = append(present, p)
		}
		admitted = append(admitted, p)
	}
	slices.SortStableFunc(admitted, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.profile.ComputeSlices, b.profile.ComputeSlices), cmp.Compare(a.profile.MemoryBytes, b.profile.MemoryBytes))
	})
	return admitted
}

// hasWhole reports whether claims hold the GPU in a form that excludes MIG devices.
func (h Held) hasWhole(address gpu.PCIAddress) bool {
	for name := range h {
		if name.IsWholeGPU() && name.Address == address {
			return true
		}
	}
	return false
}

// withheld returns why the GPU does not have all partitions of the layout.
func (l *Layout) withheld(g gpu.GPU, allowReset bool) error {
	if _, isPart := l.gpus[g.Address]; !isPart {
		return nil
	}
	if err := use.CheckPartitioning(g, allowReset); err != nil {
		return err
	}
	for _, p := range l.partsOf(g) {
		if !admits(g, []part{p}, g.MIG.Partitions) {
			return fmt.Errorf("%s@%d of the MIG configuration %q conflicts with a MIG device that this driver has not made; nvidia-smi mig -dci and -dgi destroy it", p.profile.Profile, p.placement.Start, l.name)
		}
	}
	return nil
}

// memorySize returns the memory slices of an instance of the profile.
func memorySize(p gpu.ProfileInfo) int {
	if len(p.Placements) == 0 {
		return 0
	}
	return p.Placements[0].Size
}

func profileNames(g gpu.GPU) string {
	var names []string
	for _, p := range g.MIG.Profiles {
		names = append(names, p.Profile.String())
	}
	return strings.Join(names, ", ")
}

func describeParts(parts []part) string {
	if len(parts) == 0 {
		return "nothing else"
	}
	var names []string
	for _, p := range parts {
		names = append(names, fmt.Sprintf("%s@%d", p.profile.Profile, p.placement.Start))
	}
	return strings.Join(names, ", ")
}
