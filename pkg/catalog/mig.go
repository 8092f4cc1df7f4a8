// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// MIGOffer configures the MIG devices that a node offers. The zero value offers the
// common profiles on every GPU that can be partitioned on demand.
type MIGOffer struct {
	Profiles MIGProfiles
	// GPUs is the number of partitioned GPUs: the last ones in order of the PCI
	// address. 0 means all GPUs.
	GPUs int
	// Static offers only the MIG devices that an administrator has created.
	Static bool
	// Config selects the GPUs that are cut, and their MIG devices, instead of Profiles
	// and GPUs. It is nil for MIG devices on demand. It takes effect by
	// [MIGOffer.Layout] and [Inputs.Partitions].
	Config *migconfig.Config
	// Keep keeps a layout's MIG devices, and the MIG mode of their GPUs, without a
	// claim. So the next claim finds them.
	Keep bool
	// AllowReset also offers GPUs whose MIG mode changes with a reset, because the
	// driver may reset them.
	AllowReset bool
	// AllAttributes also publishes the attributes productName, numaNode, pcieRoot,
	// sharing and enforcement on MIG devices.
	AllAttributes bool
}

// MIGProfiles selects profiles of MIG devices. The zero value selects the common
// profiles: for one, two and three slices the profile with the least memory, and
// the profile of the whole GPU, all without a suffix.
type MIGProfiles struct {
	All    bool
	Listed []gpu.Profile
}

// ParseMIGProfiles reads "common", "all", or a list such as "1g.10gb,2g.20gb".
// Its errors wrap [gpu.ErrInvalid].
func ParseMIGProfiles(s string) (MIGProfiles, error) {
	switch s {
	case "common":
		return MIGProfiles{}, nil
	case "all":
		return MIGProfiles{All: true}, nil
	}
	var p MIGProfiles
	for name := range strings.SplitSeq(s, ",") {
		profile, err := gpu.ParseProfile(name)
		if err != nil {
			return MIGProfiles{}, fmt.Errorf("profiles %q: %w; or say common or all", s, err)
		}
		if slices.Contains(p.Listed, profile) {
			return MIGProfiles{}, fmt.Errorf("profiles %q: %w: %s is there twice", s, gpu.ErrInvalid, name)
		}
		p.Listed = append(p.Listed, profile)
	}
	return p, nil
}

// ParseMIGGPUs reads a number of partitioned GPUs: "all" is 0. Its errors wrap
// [gpu.ErrInvalid].
func ParseMIGGPUs(s string) (int, error) {
	if s == "all" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %w: want all, or a number from 1 on", s, gpu.ErrInvalid)
	}
	return n, nil
}

// selected returns the selected profiles of the GPU, small ones first: the scheduler takes
// the first device that satisfies a request, so the rest of the GPU stays large.
func (m MIGProfiles) selected(g gpu.GPU) []gpu.ProfileInfo {
	known := slices.Clone(g.MIG.Profiles)
	slices.SortStableFunc(known, func(a, b gpu.ProfileInfo) int {
		return cmp.Or(cmp.Compare(a.ComputeSlices, b.ComputeSlices), cmp.Compare(a.MemoryBytes, b.MemoryBytes), cmp.Compare(a.Profile.Media, b.Profile.Media))
	})
	var meant []gpu.ProfileInfo
	whole := 0
	for _, p := range known {
		whole = max(whole, p.ComputeSlices)
	}
	for _, p := range known {
		same := func(other gpu.ProfileInfo) bool { return other.Profile == p.Profile }
		sameSlices := func(other gpu.ProfileInfo) bool { return other.ComputeSlices == p.ComputeSlices }
		switch {
		case slices.ContainsFunc(meant, same):
		case m.All, slices.Contains(m.Listed, p.Profile):
			meant = append(meant, p)
		case m.Listed == nil && p.Profile.Media == "" && !slices.ContainsFunc(meant, sameSlices) && (p.ComputeSlices <= 3 || p.ComputeSlices == whole):
			meant = append(meant, p)
		}
	}
	return meant
}

// check returns an error if the GPU cannot be partitioned on demand into profiles of
// the offer.
func (o MIGOffer) check(g gpu.GPU) error {
	if err := use.CheckPartitioning(g, o.AllowReset); err != nil {
		return err
	}
	if len(o.Profiles.selected(g)) == 0 {
		return errors.New("it has none of the profiles that are offered")
	}
	return nil
}

// cut returns the addresses of the GPUs that are offered in parts. gpus must be in
// order of the PCI address.
func (c Catalog) cut(gpus []gpu.GPU) map[gpu.PCIAddress]bool {
	offered := map[gpu.PCIAddress]bool{}
	if !c.inputs.Offer.Partitions() {
		return offered
	}
	for _, g := range slices.Backward(gpus) {
		switch {
		case c.inputs.MIG.Static:
			offered[g.Address] = len(g.MIG.Partitions) > 0
		case c.inputs.Partitions != nil:
			offered[g.Address] = c.inputs.Partitions.covers(g, c.inputs.MIG.AllowReset) && (c.inputs.Partitions.fixes(g) || !c.inputs.NoCounters)
		case c.inputs.MIG.check(g) == nil && !c.inputs.NoCounters && (c.inputs.MIG.GPUs == 0 || len(offered) < c.inputs.MIG.GPUs):
			offered[g.Address] = true
		}
	}
	return offered
}

// fixed reports whether the GPU is offered in the partitions of a layout.
func (c Catalog) fixed(g gpu.GPU, offered bool) bool {
	return offered && !c.inputs.MIG.Static && c.inputs.Partitions.fixes(g)
}

// parts returns the MIG devices of a GPU that are offered or held by claims. It
// also returns their counters if they need any.
func (c Catalog) parts(g gpu.GPU, offered bool, held Held) ([]part, []counter) {
	var parts []part
	switch {
	case !offered:
	case c.inputs.MIG.Static:
		parts = made(g)
	case c.fixed(g, offered):
		parts = c.inputs.Partitions.admitted(g, held)
	default:
		for _, p := range c.inputs.MIG.Profiles.selected(g) {
			for _, placement := range p.Placements {
				parts = append(parts, part{profile: p, placement: placement})
			}
		}
	}
	for _, p := range heldParts(g, held) {
		if !slices.ContainsFunc(parts, func(q part) bool { return q.name(g) == p.name(g) }) {
			p.withdrawn = true
			parts = append(parts, p)
		}
	}
	if c.inputs.MIG.Static || c.inputs.NoCounters || c.fixed(g, offered) {
		return parts, nil
	}
	return partition(g, parts, g.MIG.Partitions)
}

// heldParts returns the MIG devices of a GPU that claims hold.
func heldParts(g gpu.GPU, held Held) []part {
	var parts []part
	for _, name := range held.PartsOf(g.Address) {
		parts = append(parts, find(g, name)...)
	}
	return parts
}

// made returns the partitions that an administrator has created. It skips a GPU
// instance with several compute instances, because device names do not distinguish
// several devices on one placement, and one without a compute instance, because it
// is not a MIG device yet.
func made(g gpu.GPU) []part {
	devices := map[int]int{} // in each GPU instance
	for _, p := range g.MIG.Partitions {
		devices[p.GPUInstanceID]++
	}
	var parts []part
	for _, p := range g.MIG.Partitions {
		i := slices.IndexFunc(g.MIG.Profiles, func(info gpu.ProfileInfo) bool { return info.Profile == p.Profile })
		if p.UUID == "" || devices[p.GPUInstanceID] > 1 || i < 0 {
			continue
		}
		parts = append(parts, part{profile: g.MIG.Profiles[i], placement: p.Placement, uuid: p.UUID})
	}
	return parts
}

// find returns the part of the GPU with the name; nil if the GPU has no such
// placement.
func find(g gpu.GPU, name kind.Name) []part {
	info, placement, known := name.FindIn(g.MIG)
	if !known {
		return nil
	}
	return []part{{profile: info, placement: placement}}
}

func (p part) name(g gpu.GPU) kind.Name {
	return kind.Partition(g.Address, p.profile.Profile, p.placement.Start)
}
