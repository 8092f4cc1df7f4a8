// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// part is a MIG device that can be published.
type part struct {
	profile   gpu.ProfileInfo
	placement gpu.Placement
	// uuid of a device that an administrator has created.
	uuid string
	// withdrawn parts are published only because claims hold them.
	withdrawn bool
}

func (p part) covers(slice int) bool {
	return p.placement.Start <= slice && slice < p.placement.Start+p.placement.Size
}

// counter is a resource of a GPU with a total. The parts that exist at the same
// time must not exceed the total.
type counter struct {
	name  string
	total int
	takes []int // by each part
}

// partition returns the parts that still fit with the foreign partitions. It also
// returns the fewest counters that admit exactly the sets of parts that the
// hardware admits. The whole GPU takes all of every counter.
//
// The hardware's rules are: each memory slice belongs to one part, and the parts
// have no more compute slices, media engines and instances of a profile than the
// GPU has.
func partition(g gpu.GPU, candidates []part, foreign []gpu.Partition) ([]part, []counter) {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(p part) bool {
		return slices.ContainsFunc(foreign, func(f gpu.Partition) bool { return p.placement.Overlaps(f.Placement) })
	})
	limits := rules(g.MIG.Profiles)
	for i := range limits {
		limits[i].total -= limits[i].takenBy(g.MIG.Profiles, foreign)
	}
	candidates = slices.DeleteFunc(candidates, func(p part) bool {
		return slices.ContainsFunc(limits, func(r rule) bool { return r.taken(p.profile) > r.total })
	})
	counters := memoryCounters(candidates)
	var others []counter
	for _, r := range limits {
		c := counter{name: r.name, total: r.total}
		for _, p := range candidates {
			c.takes = append(c.takes, r.taken(p.profile))
		}
		needed := heaviest(candidates, c.takes) > c.total
		if needed && !slices.ContainsFunc(others, c.follows) {
			others = append(slices.DeleteFunc(others, func(other counter) bool { return other.follows(c) }), c)
		}
	}
	// A memory counter is redundant if another counter already separates its parts:
	// for example, parts that each take the only engine of the GPU.
	for i := 0; i < len(counters); {
		if rest := slices.Delete(slices.Clone(counters), i, i+1); keepApart(append(rest, others...), candidates) {
			counters = slices.Delete(counters, i, i+1)
		} else {
			i++
		}
	}
	return candidates, append(counters, others...)
}

// rule is a limit of the GPU, other than memory slices, on the sum over instances.
type rule struct {
	name  string
	total int
	taken func(gpu.ProfileInfo) int // the amount that an instance takes
}

// rules returns the rules of a GPU with the profiles. Instances share an engine if
// all instances of a profile together have more of it than the GPU; such an engine
// is not a limit.
func rules(profiles []gpu.ProfileInfo) []rule {
	compute := rule{name: "compute", taken: func(p gpu.ProfileInfo) int { return p.ComputeSlices }}
	for _, p := range profiles {
		compute.total = max(compute.total, p.ComputeSlices*max(1, p.MaxInstances))
	}
	engines := []rule{
		{name: "ofa", taken: func(p gpu.ProfileInfo) int { return p.OFAs }},
		{name: "jpeg", taken: func(p gpu.ProfileInfo) int { return p.JPEGs }},
		{name: "decoder", taken: func(p gpu.ProfileInfo) int { return p.Decoders }},
		{name: "encoder", taken: func(p gpu.ProfileInfo) int { return p.Encoders }},
	}
	for i := range engines {
		for _, p := range profiles {
			engines[i].total = max(engines[i].total, engines[i].taken(p))
		}
	}
	engines = slices.DeleteFunc(engines, func(r rule) bool {
		return slices.ContainsFunc(profiles, func(p gpu.ProfileInfo) bool { return r.taken(p)*p.MaxInstances > r.total })
	})
	all := append([]rule{compute}, engines...)
	for _, limited := range profiles {
		all = append(all, rule{
			name:  fmt.Sprintf("max-%d", limited.ID),
			total: limited.MaxInstances,
			taken: func(p gpu.ProfileInfo) int {
				if p.Profile == limited.Profile {
					return 1
				}
				return 0
			},
		})
	}
	return all
}

func (r rule) takenBy(profiles []gpu.ProfileInfo, foreign []gpu.Partition) int {
	taken := 0
	for _, f := range foreign {
		if i := slices.IndexFunc(profiles, func(p gpu.ProfileInfo) bool { return p.Profile == f.Profile }); i >= 0 {
			taken += r.taken(profiles[i])
		}
	}
	return taken
}

// follows reports whether c admits every set of parts that other admits.
func (c counter) follows(other counter) bool {
	for i := range c.takes {
		if c.takes[i]*other.total > other.takes[i]*c.total {
			return false
		}
	}
	return true
}

// heaviest returns the largest amount that parts without a common memory slice can
// take together.
func heaviest(parts []part, takes []int) int {
	end := func(p part) int { return p.placement.Start + p.placement.Size }
	best := []int{0} // by the number of used memory slices
	for slice := 1; slice <= memorySlices(parts); slice++ {
		best = append(best, best[slice-1])
		for i, p := range parts {
			if end(p) == slice {
				best[slice] = max(best[slice], best[p.placement.Start]+takes[i])
			}
		}
	}
	return best[len(best)-1]
}

func memorySlices(parts []part) int {
	n := 0
	for _, p := range parts {
		n = max(n, p.placement.Start+p.placement.Size)
	}
	return n
}

// memoryCounters returns counters that keep parts from having a memory slice in
// common. A slice that is only taken together with another one needs no counter.
// Two neighbouring slices become one counter with a total of two if that counter
// still excludes every overlap: if at most one part takes only one of the two. A
// counter is named for its first slice, such as m0.
func memoryCounters(parts []part) []counter {
	var counters []counter
	for slice := range memorySlices(parts) {
		c := counter{name: fmt.Sprintf("m%d", slice), total: 1}
		for _, p := range parts {
			if p.covers(slice) {
				c.takes = append(c.takes, 1)
			} else {
				c.takes = append(c.takes, 0)
			}
		}
		if slices.ContainsFunc(counters, c.follows) {
			continue
		}
		counters = append(slices.DeleteFunc(counters, func(other counter) bool { return other.follows(c) }), c)
	}
	for i := 0; i+1 < len(counters); {
		joined := join(counters[i], counters[i+1])
		if merged := slices.Replace(slices.Clone(counters), i, i+2, joined); keepApart(merged, parts) {
			counters = merged
		} else {
			i++
		}
	}
	return counters
}

func join(a, b counter) counter {
	c := counter{name: a.name, total: a.total + b.total}
	for i := range a.takes {
		c.takes = append(c.takes, a.takes[i]+b.takes[i])
	}
	return c
}

// keepApart reports whether the counters exclude every pair of parts with a common
// memory slice. They must also exclude every part together with the whole GPU.
// Pairs are enough, because parts without common slices never take more slices than
// the GPU has.
func keepApart(counters []counter, parts []part) bool {
	for i, p := range parts {
		if !slices.ContainsFunc(counters, func(c counter) bool { return c.takes[i] > 0 }) {
			return false
		}
		for j, q := range parts[:i] {
			if p.placement.Overlaps(q.placement) && !slices.ContainsFunc(counters, func(c counter) bool { return c.takes[i]+c.takes[j] > c.total }) {
				return false
			}
		}
	}
	return true
}

// counterSetName returns the name of a GPU's counter set.
func counterSetName(g gpu.GPU) string { return g.Address.ShortName() }

func counterSet(g gpu.GPU, counters []counter) resourceapi.CounterSet {
	set := resourceapi.CounterSet{Name: counterSetName(g), Counters: map[string]resourceapi.Counter{}}
	for _, c := range counters {
		set.Counters[c.name] = count(c.total)
	}
	return set
}

// wholeCounter returns the only counter of a GPU whose parts need none. It excludes
// the whole GPU, its time slices and its seats from each other.
func wholeCounter(parts int) counter {
	return counter{name: "gpu", total: 1, takes: make([]int, parts)}
}

// setCounters sets the counters of a GPU, and what each device consumes of them: the whole GPU and devices of
// units everything, a part its own.
func (g *group) setCounters(whole gpu.GPU, counters []counter) {
	if len(counters) == 0 {
		return
	}
	set := counterSet(whole, counters)
	g.counters = []resourceapi.CounterSet{set}
	consumption := func(counters map[string]resourceapi.Counter) []resourceapi.DeviceCounterConsumption {
		return []resourceapi.DeviceCounterConsumption{{CounterSet: set.Name, Counters: counters}}
	}
	for _, devices := range [][]resourceapi.Device{g.whole, g.fractions} {
		for i := range devices {
			devices[i].ConsumesCounters = consumption(set.Counters)
		}
	}
	for i := range g.parts {
		taken := map[string]resourceapi.Counter{}
		for _, c := range counters {
			if c.takes[i] > 0 {
				taken[c.name] = count(c.takes[i])
			}
		}
		if len(taken) > 0 {
			g.parts[i].ConsumesCounters = consumption(taken)
		}
	}
}

func count(n int) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}
