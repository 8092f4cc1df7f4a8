// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// part is a MIG device that a GPU may be cut into.
type part struct {
	profile   gpu.ProfileInfo
	placement gpu.Placement
	// uuid of a device that is there already and only handed out.
	uuid string
	// withdrawn parts are there only as long as claims hold them.
	withdrawn bool
}

func (p part) covers(slice int) bool {
	return p.placement.Start <= slice && slice < p.placement.Start+p.placement.Size
}

// counter is something of which a GPU has a total, and of which parts that
// exist at the same time take no more.
type counter struct {
	name  string
	total int
	takes []int // by each part
}

// partition gives the parts that still fit beside the foreign partitions, and
// the fewest counters that admit exactly those sets of parts that the hardware
// does. The GPU as a whole takes all of every counter.
//
// The hardware's rules are: no memory slice twice, and no more compute slices,
// media engines and instances of a profile than there are.
func partition(g gpu.GPU, candidates []part, foreign []gpu.Partition) ([]part, []counter) {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(p part) bool {
		return slices.ContainsFunc(foreign, func(f gpu.Partition) bool { return p.placement.Overlaps(f.Placement) })
	})
	limits := rules(g.MIG.Profiles)
	for i := range limits {
		limits[i].total -= limits[i].takenBy(g.MIG.Profiles, foreign)
	}
	candidates = slices.DeleteFunc(candidates, func(p part) bool {
		return slices.ContainsFunc(limits, func(r rule) bool { return r.of(p.profile) > r.total })
	})
	counters := memoryCounters(candidates)
	var others []counter
	for _, r := range limits {
		c := counter{name: r.name, total: r.total}
		for _, p := range candidates {
			c.takes = append(c.takes, r.of(p.profile))
		}
		needed := heaviest(candidates, c.takes) > c.total
		if needed && !slices.ContainsFunc(others, c.follows) {
			others = append(others, c)
		}
	}
	// Devices that have the one engine of the GPU need nothing else to keep them
	// apart.
	for i := 0; i < len(counters); {
		if rest := slices.Delete(slices.Clone(counters), i, i+1); keepApart(append(rest, others...), candidates) {
			counters = slices.Delete(counters, i, i+1)
		} else {
			i++
		}
	}
	return candidates, append(counters, others...)
}

// rule is a total that instances share apart from memory slices.
type rule struct {
	name  string
	total int
	of    func(gpu.ProfileInfo) int // what an instance takes
}

// rules gives those of a GPU with the profiles. An engine of which all
// instances of a profile together could have more than the GPU has is one that
// instances share, and limits nothing.
func rules(profiles []gpu.ProfileInfo) []rule {
	compute := rule{name: "compute", of: func(p gpu.ProfileInfo) int { return p.ComputeSlices }}
	for _, p := range profiles {
		compute.total = max(compute.total, p.ComputeSlices*max(1, p.MaxInstances))
	}
	engines := []rule{
		{name: "ofa", of: func(p gpu.ProfileInfo) int { return p.OFAs }},
		{name: "jpeg", of: func(p gpu.ProfileInfo) int { return p.JPEGs }},
		{name: "decoder", of: func(p gpu.ProfileInfo) int { return p.Decoders }},
		{name: "encoder", of: func(p gpu.ProfileInfo) int { return p.Encoders }},
	}
	for i := range engines {
		for _, p := range profiles {
			engines[i].total = max(engines[i].total, engines[i].of(p))
		}
	}
	engines = slices.DeleteFunc(engines, func(r rule) bool {
		return slices.ContainsFunc(profiles, func(p gpu.ProfileInfo) bool { return r.of(p)*p.MaxInstances > r.total })
	})
	all := append([]rule{compute}, engines...)
	for _, limited := range profiles {
		all = append(all, rule{
			name:  fmt.Sprintf("max-%d", limited.ID),
			total: limited.MaxInstances,
			of: func(p gpu.ProfileInfo) int {
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
			taken += r.of(profiles[i])
		}
	}
	return taken
}

// follows reports whether what other admits, c admits too.
func (c counter) follows(other counter) bool {
	for i := range c.takes {
		if c.takes[i]*other.total > other.takes[i]*c.total {
			return false
		}
	}
	return true
}

// heaviest is the most that parts without a memory slice in common can take.
func heaviest(parts []part, takes []int) int {
	end := func(p part) int { return p.placement.Start + p.placement.Size }
	best := []int{0} // by the number of memory slices that are used
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

// memoryCounters keeps parts from having a memory slice in common. A slice that
// is only taken together with another one needs no counter. Neighbours become
// one counter where that still keeps apart what must be: where one part at most
// takes either of two slices alone, two of the two do for both. A counter is
// named after its first slice, m0.
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

// keepApart reports whether the counters admit no two parts that have a memory
// slice in common, and no part beside the whole. That is enough: parts without
// one never take more memory slices than there are.
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

// counterSetName is the name of a GPU's counter set.
func counterSetName(g gpu.GPU) string { return g.Address.ShortName() }

func counterSet(g gpu.GPU, counters []counter) resourceapi.CounterSet {
	set := resourceapi.CounterSet{Name: counterSetName(g), Counters: map[string]resourceapi.Counter{}}
	for _, c := range counters {
		set.Counters[c.name] = count(c.total)
	}
	return set
}

// wholeCounter is the one counter of a GPU whose parts, if any, need none: it
// keeps apart what takes all of the GPU.
func wholeCounter(parts int) counter {
	return counter{name: "gpu", total: 1, takes: make([]int, parts)}
}

// consumption is what the devices of a GPU take of its counters: first the GPU
// as a whole, which is what time slices take too, then each part.
func consumption(g gpu.GPU, counters []counter, parts int) [][]resourceapi.DeviceCounterConsumption {
	all := make([][]resourceapi.DeviceCounterConsumption, 1+parts)
	if len(counters) == 0 {
		return all
	}
	all[0] = []resourceapi.DeviceCounterConsumption{{CounterSet: counterSetName(g), Counters: counterSet(g, counters).Counters}}
	for i := range parts {
		taken := map[string]resourceapi.Counter{}
		for _, c := range counters {
			if c.takes[i] > 0 {
				taken[c.name] = count(c.takes[i])
			}
		}
		if len(taken) > 0 {
			all[1+i] = []resourceapi.DeviceCounterConsumption{{CounterSet: counterSetName(g), Counters: taken}}
		}
	}
	return all
}

func count(n int) resourceapi.Counter {
	return resourceapi.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}
