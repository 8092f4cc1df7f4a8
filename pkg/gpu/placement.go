// SPDX-License-Identifier: Apache-2.0

package gpu

// firstWithoutReset is the compute capability of the first generation (Hopper)
// that changes its MIG mode without a reset.
const firstWithoutReset = 9

// MIGModeNeedsReset reports whether a change of the MIG mode takes effect with the
// next GPU reset. Such a change then persists over reboots. On newer GPUs it takes
// effect at once and lasts until the driver is unloaded.
func (g GPU) MIGModeNeedsReset() bool { return g.ComputeCapability.Major < firstWithoutReset }

// Overlaps reports whether two placements on one GPU have a memory slice in
// common.
func (p Placement) Overlaps(q Placement) bool {
	return p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
}

// Find returns the profile and its placement at the given first memory slice. It
// returns false if the GPU has no such placement.
func (m MIG) Find(profile Profile, start int) (ProfileInfo, Placement, bool) {
	for _, info := range m.Profiles {
		for _, p := range info.Placements {
			if info.Profile == profile && p.Start == start {
				return info, p, true
			}
		}
	}
	return ProfileInfo{}, Placement{}, false
}
