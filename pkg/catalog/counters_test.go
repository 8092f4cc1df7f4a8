// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// cutting offers MIG on every GPU that has it.
func cutting(profiles catalog.MIGProfiles) catalog.Inputs {
	c := sharing()
	c.Offer += ",mig"
	c.MIG = catalog.MIGOffer{Profiles: profiles, AllowReset: true}
	return c
}

// migModels are the simulator's models of GPUs that can be cut.
func migModels(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, name := range nvmlsim.ModelNames() {
		if kind := kindOf(t, name); kind.MIG != nil {
			names = append(names, name)
		}
	}
	if len(names) < 5 {
		t.Fatalf("models with MIG: %v", names)
	}
	return names
}

func kindOf(t testing.TB, model string) nvmlsim.Kind {
	t.Helper()
	m := loadModel(t, model)
	return m.Kinds[m.GPUs[0].Kind]
}

// books are the counters of one GPU as published: the totals, and what each
// device takes. Device 0 is the GPU as a whole.
type books struct {
	counters []string
	totals   []int64
	devices  []kind.Name
	takes    [][]int64
}

func newBooks(t testing.TB, c catalog.Inputs, node gpu.Node) books {
	t.Helper()
	var b books
	var set resourceapi.CounterSet
	var devices []resourceapi.Device
	for _, slice := range catalog.New(c).Resources(node, nil).Pools[c.Pool].Slices {
		for _, s := range slice.SharedCounters {
			if set.Name != "" {
				t.Fatalf("counter sets %s and %s for one GPU", set.Name, s.Name)
			}
			set = s
		}
		devices = append(devices, slice.Devices...)
	}
	for name, counter := range set.Counters {
		b.counters = append(b.counters, name)
		b.totals = append(b.totals, counter.Value.Value())
	}
	for _, device := range devices {
		name, err := kind.Parse(device.Name)
		must(t, err)
		takes := make([]int64, len(b.counters))
		for _, consumed := range device.ConsumesCounters {
			if consumed.CounterSet != set.Name {
				t.Fatalf("%s takes of %s, want %s", device.Name, consumed.CounterSet, set.Name)
			}
			for counter, n := range consumed.Counters {
				takes[slices.Index(b.counters, counter)] = n.Value.Value()
			}
		}
		b.devices, b.takes = append(b.devices, name), append(b.takes, takes)
	}
	if b.devices[0].Kind != kind.GPU {
		t.Fatalf("the first device is %s", b.devices[0])
	}
	return b
}

// admit reports whether the devices fit together by all counters but one.
func (b books) admit(set []int, but int) bool {
	for c, total := range b.totals {
		sum := int64(0)
		for _, device := range set {
			sum += b.takes[device][c]
		}
		if sum > total && c != but {
			return false
		}
	}
	return true
}

const allCounters = -1

// possible are the rules of the hardware for devices of one GPU. They follow the
// simulator's model.
func possible(mig *nvmlsim.MIG, devices []kind.Name) bool {
	compute, media := 0, [4]int{}
	instances := map[string]int{}
	used := 0 // memory slices, a bit each
	for _, name := range devices {
		if name.Kind == kind.GPU {
			return len(devices) == 1
		}
		p := mig.Profiles[slices.IndexFunc(mig.Profiles, func(p nvmlsim.MIGProfile) bool { return p.Name == name.Profile.String() })]
		bits := (1<<p.Size - 1) << name.Start
		if used&bits != 0 {
			return false
		}
		used |= bits
		compute += name.Profile.Slices
		for i, n := range enginesOf(p) {
			media[i] += n
		}
		if instances[p.Name]++; instances[p.Name] > p.Max {
			return false
		}
	}
	for i, total := range engineTotals(mig) {
		if media[i] > total {
			return false
		}
	}
	return compute <= mig.ComputeSlices
}

// enginesOf returns the media engines of a profile.
func enginesOf(p nvmlsim.MIGProfile) [4]int { return [...]int{p.Decoders, p.Encoders, p.JPEGs, p.OFAs} }

// engineTotals returns the media engines of a GPU: the engines of the profile with the most. Engines
// that instances share have no limit.
func engineTotals(mig *nvmlsim.MIG) (totals [4]int) {
	for i := range totals {
		for _, p := range mig.Profiles {
			totals[i] = max(totals[i], enginesOf(p)[i])
		}
		if slices.ContainsFunc(mig.Profiles, func(p nvmlsim.MIGProfile) bool { return enginesOf(p)[i]*p.Max > totals[i] }) {
			totals[i] = math.MaxInt
		}
	}
	return totals
}

func (b books) String() string { return fmt.Sprintf("counters %v of %v", b.counters, b.totals) }

func (b books) of(set []int) (names []kind.Name) {
	for _, device := range set {
		names = append(names, b.devices[device])
	}
	return names
}

// upToThree calls do with every set of one to three of n.
func upToThree(n int, do func(set []int)) {
	for i := range n {
		do([]int{i})
		for j := range i {
			do([]int{i, j})
			for k := range j {
				do([]int{i, j, k})
			}
		}
	}
}

// selections returns every way to offer some of a model's profiles. If the model has many,
// a selection offers or leaves out two at most.
func selections(t testing.TB, mig *nvmlsim.MIG) []catalog.MIGProfiles {
	t.Helper()
	all := []catalog.MIGProfiles{{}, {All: true}}
	const many = 7
	for chosen := 1; chosen < 1<<len(mig.Profiles); chosen++ {
		if n := bits.OnesCount(uint(chosen)); len(mig.Profiles) > many && n > 2 && n < len(mig.Profiles)-2 {
			continue
		}
		var listed []gpu.Profile
		for i, p := range mig.Profiles {
			if chosen&(1<<i) == 0 {
				continue
			}
			profile, err := gpu.ParseProfile(p.Name)
			must(t, err)
			listed = append(listed, profile)
		}
		all = append(all, catalog.MIGProfiles{Listed: listed})
	}
	return all
}

// The counters admit each set of up to three devices exactly if the hardware does.
// This holds for all profiles of all models, and each counter is needed for one of
// them.
func TestCountersAdmitWhatTheHardwareDoes(t *testing.T) {
	t.Parallel()
	for _, model := range migModels(t) {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			node, mig := simulated(t, model), kindOf(t, model).MIG
			node.GPUs = node.GPUs[:1]
			for _, profiles := range selections(t, mig) {
				b := newBooks(t, cutting(profiles), node)
				needed := make([]bool, len(b.counters))
				upToThree(len(b.devices), func(set []int) {
					possible := possible(mig, b.of(set))
					if admitted := b.admit(set, allCounters); admitted != possible {
						t.Fatalf("profiles %v: %v: admitted %v, possible %v; %s", profiles, b.of(set), admitted, possible, b)
					}
					for c := range b.counters {
						needed[c] = needed[c] || !possible && b.admit(set, c)
					}
				})
				for c, name := range b.counters {
					if !needed[c] {
						t.Errorf("profiles %v: counter %s can be left out of %s", profiles, name, b)
					}
				}
			}
		})
	}
}

func profileOf(g gpu.GPU, name kind.Name) gpu.ProfileInfo {
	return g.MIG.Profiles[slices.IndexFunc(g.MIG.Profiles, func(p gpu.ProfileInfo) bool { return p.Profile == name.Profile })]
}
