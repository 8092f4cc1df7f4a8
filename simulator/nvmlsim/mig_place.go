// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// What fits where: the rules by which hardware admits or refuses instances.

// admits reports whether a placement is one of the profile's.
func (p *profileSpec) admits(placement nvml.GpuInstancePlacement) bool {
	return int(placement.Size) == p.Size && slices.Contains(p.Starts, int(placement.Start))
}

// fits reports whether a GPU that holds some instances has room for one more:
// free memory slices, compute slices, media engines, and no more of the
// profile than its maximum.
func fits(s *spec, instances []Instance, p *profileSpec, start int) bool {
	compute, same, media := p.slices, 1, p.engines()
	for _, in := range instances {
		other := s.profiles[in.Profile]
		if start < in.Start+other.Size && in.Start < start+p.Size {
			return false
		}
		compute += other.slices
		for i, n := range other.engines() {
			media[i] += n
		}
		if other == p {
			same++
		}
	}
	for i, total := range s.engineTotals() {
		if total >= 0 && media[i] > total {
			return false
		}
	}
	return compute <= s.kind.MIG.ComputeSlices && same <= p.Max
}

// remainingCapacity counts how many more instances of a profile fit.
func remainingCapacity(s *spec, instances []Instance, p *profileSpec) int {
	held := slices.Clone(instances)
	n := 0
	for _, start := range p.Starts {
		if fits(s, held, p, start) {
			held = append(held, Instance{Profile: p.Profile, Start: start})
			n++
		}
	}
	return n
}

// newInstance makes an instance. Its ID follows from its placement, as the
// halves, quarters and eighths of a GPU are numbered: 0 the whole, 1 and 2 the
// halves, 3 to 6 the quarters, and so on. Where a table has odd sizes and the
// ID is taken, the next free one it is.
func (s *spec) newInstance(held []Instance, p *profileSpec, start int, serial uint64) Instance {
	id := s.kind.MIG.MemorySlices/p.Size - 1 + start/p.Size
	for slices.ContainsFunc(held, func(in Instance) bool { return in.ID == id }) {
		id = (id + 1) % capInstances
	}
	return Instance{ID: id, Profile: p.Profile, Start: start, Serial: serial}
}

// withInstance keeps instances in the order of their placement.
func withInstance(instances []Instance, in Instance) []Instance {
	instances = append(instances, in)
	slices.SortFunc(instances, func(a, b Instance) int { return cmp.Compare(a.Start, b.Start) })
	return instances
}

// computeProfile is a compute instance profile within a GPU instance profile.
type computeProfile struct {
	number, slices, multiprocessors, max int
}

// computeProfile returns a compute instance profile by NVML's number. It returns nil
// if the GPU instance does not support the profile. A profile that spans the GPU
// instance has all of its multiprocessors; a smaller one has the multiprocessors of
// its slices.
func (s *spec) computeProfile(p *profileSpec, number int) *computeProfile {
	for _, c := range computeProfiles {
		// No GPU offers three slices of four.
		if c.number != number || c.slices > p.slices || c.slices == 3 && p.slices == 4 ||
			number == nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL && !s.kind.MIG.NVLCompute {
			continue
		}
		cp := &computeProfile{number: number, slices: c.slices, multiprocessors: c.slices * s.smallest(), max: p.slices / c.slices}
		if c.slices == p.slices {
			cp.multiprocessors = p.Multiprocessors
		}
		return cp
	}
	return nil
}

// starts lists where a compute instance can begin within a GPU instance.
func (c *computeProfile) starts() []int {
	// Three slices begin where four would.
	step := c.slices
	if step == 3 {
		step = 4
	}
	var starts []int
	for i := range c.max {
		starts = append(starts, i*step)
	}
	return starts
}

// computeFits reports whether a GPU instance has room for one more compute
// instance.
func (s *spec) computeFits(in *Instance, c *computeProfile, start int) bool {
	for _, ci := range in.Compute {
		other := s.computeProfile(s.profiles[in.Profile], ci.Profile)
		if start < ci.Start+other.slices && ci.Start < start+c.slices {
			return false
		}
	}
	return true
}

// computeID returns the smallest free ID.
func computeID(in *Instance) int {
	id := 0
	for slices.ContainsFunc(in.Compute, func(ci ComputeInstance) bool { return ci.ID == id }) {
		id++
	}
	return id
}

// migName is how nvidia-smi calls a MIG device: 3g.40gb where the compute
// instance spans the GPU instance, 1c.3g.40gb where it does not.
func (s *spec) migName(in *Instance, ci *ComputeInstance) string {
	p := s.profiles[in.Profile]
	if c := s.computeProfile(p, ci.Profile); c.slices < p.slices {
		return fmt.Sprintf("%dc.%s", c.slices, p.Name)
	}
	return p.Name
}

// findMIGDevice returns the MIG device with the UUID, or nil.
func findMIGDevice(g *GPUState, uuid string) (*Instance, *ComputeInstance) {
	if uuid == "" {
		return nil, nil
	}
	for i := range g.Instances {
		in := &g.Instances[i]
		for j := range in.Compute {
			if in.Compute[j].UUID == uuid {
				return in, &in.Compute[j]
			}
		}
	}
	return nil, nil
}

// migUUIDs lists the MIG devices of a GPU in the order of their index.
func migUUIDs(g *GPUState) []string {
	var uuids []string
	for _, in := range g.Instances {
		for _, ci := range in.Compute {
			uuids = append(uuids, ci.UUID)
		}
	}
	return uuids
}
