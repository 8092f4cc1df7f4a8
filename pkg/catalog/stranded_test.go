// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestMostSlicesOfPlacements(t *testing.T) {
	for want, names := range map[int64][]string{
		0: {},
		3: {"gpu-1b-00-mig-3g-40gb-4"},
		6: {"gpu-1b-00-mig-3g-40gb-0", "gpu-1b-00-mig-3g-40gb-4", "gpu-1b-00-mig-1g-20gb-6"},
		4: {"gpu-01-00-mig-1g-24gb-0", "gpu-01-00-mig-1g-24gb-3", "gpu-01-00-mig-2g-48gb-6", "gpu-01-00-mig-4g-96gb-0"},
		7: {"gpu-1b-00-mig-4g-90gb-0", "gpu-1b-00-mig-3g-90gb-4", "gpu-1b-00-mig-1g-23gb-0", "gpu-1b-00-mig-2g-45gb-4"},
	} {
		var all []kind.Name
		for _, name := range names {
			all = append(all, kindtest.Name(name))
		}
		if got := catalog.MostSlices(all, all); got != want {
			t.Errorf("%v: got %d, want %d", names, got, want)
		}
	}
}

// The rules of the hardware admit no MIG devices with the stranded slices beside those in use.
func TestNoMIGDeviceCanHaveStrandedSlices(t *testing.T) {
	t.Parallel()
	for _, model := range migModels(t) {
		c, node, mig := cutting(catalog.MIGProfiles{}), first(t, 1, model), kindOf(t, model).MIG
		pages := catalog.New(c).Resources(node, nil).Pools[c.Pool].Slices
		all := slices.DeleteFunc(newBooks(t, c, node).devices, func(n kind.Name) bool { return !n.IsPartition() })
		// most returns the most slices of devices from the i-th on that the hardware has beside others.
		var most func(others []kind.Name, i int) int
		most = func(others []kind.Name, i int) (best int) {
			for ; i < len(all); i++ {
				if more := append(slices.Clip(others), all[i]); possible(mig, more) {
					best = max(best, all[i].Profile.Slices+most(more, i+1))
				}
			}
			return best
		}
		strands := false
		upToThree(len(all), func(set []int) {
			taken, held, used := catalog.Taken{}, []kind.Name{}, 0
			for _, i := range set {
				taken.Add(all[i].String(), true, 0)
				held, used = append(held, all[i]), used+all[i].Profile.Slices
			}
			if len(set) == 3 || !possible(mig, held) {
				return
			}
			got, want := catalog.StrandedOf(pages, taken)[kind.Whole(node.GPUs[0].Address).String()].Slices, most(nil, 0)-used-most(held, 0)
			if strands = strands || want > 0; got != int64(want) {
				t.Errorf("%s with %v: %d slices are stranded, want %d", model, held, got, want)
			}
		})
		if mig.ComputeSlices == 7 && !strands {
			t.Errorf("%s: two devices of three slices of seven strand none", model)
		}
	}
}
