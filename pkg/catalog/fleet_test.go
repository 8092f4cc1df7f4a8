// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// demo/fleet fills its ten GPUs in whatever order its pods come, though no GPU is
// spare. Whole GPUs and shares are taken from the first GPU on and time slices
// from the last one on. A GPU is opened for shares or time slices only when
// none that is open has room.
//
// The scheduler (1.37) counts what a claim consumes of a device's capacity twice
// from the moment in which it sees the allocation that it wrote until it has
// done with the pod. So a GPU can seem full that is not. The seats that are left
// on the fleet's GPUs keep that from opening one more.
func TestTheFleetFitsInAnyOrder(t *testing.T) {
	t.Parallel()
	c := slicing(sharing())
	c.Shares.Units = kind.Numbers{kind.TimeSlice: 12}
	fitInAnyOrder(t, c, tenA100(t), []fleetTeam{
		{claim: "class=gpu", pods: 4, gpus: 4, alone: true},
		{claim: "class=mps memory=9Gi compute=12", pods: 20, gpus: 3},
		{claim: "class=timeslice", pods: 30, gpus: 3},
	})
}

// demo/course/mig has the same teams, with three GPUs of seven MIG devices each for the
// servers. Its layouts.yaml has the same layout.
func TestTheFleetWithMIGFitsInAnyOrder(t *testing.T) {
	t.Parallel()
	c := slicing(sharing())
	c.Shares.Units = kind.Numbers{kind.TimeSlice: 12}
	node := tenA100(t)
	fitInAnyOrder(t, layered(t, c, node, "[4,5,6] 1g.10gb*7"), node, []fleetTeam{
		{claim: "class=gpu", pods: 4, gpus: 4, alone: true},
		{claim: "class=mig profile=1g.10gb", pods: 20, gpus: 3, alone: true},
		{claim: "class=timeslice", pods: 30, gpus: 3},
	})
}

// fleetTeam is a number of pods with equal claims, and the number of GPUs that they use.
type fleetTeam struct {
	claim      string
	pods, gpus int
	// alone says that a claim holds its device alone, so it is never counted twice.
	alone bool
}

// tenA100 returns the node of demo/fleet.
func tenA100(t *testing.T) gpu.Node {
	t.Helper()
	return simulated(t, filepath.Join("..", "..", "demo", "fleet", "ten-a100.yaml"))
}

// fitInAnyOrder allocates the claims of all teams in random orders. It fails if a claim
// does not fit, or if a team uses another number of GPUs.
func fitInAnyOrder(t *testing.T, c catalog.Inputs, hardware gpu.Node, teams []fleetTeam) {
	t.Helper()
	const countedTwice = 4
	resources := catalog.New(c).Resources(hardware, nil)
	var fleet []string
	want, alone := map[string]int{}, map[string]bool{}
	for _, team := range teams {
		fleet = append(fleet, slices.Repeat([]string{team.claim}, team.pods)...)
		want[team.claim], alone[team.claim] = team.gpus, team.alone
	}
	shippedClasses := classes(t)
	rapid.Check(t, func(rt *rapid.T) {
		node := allocator.NewNode(resources, allocator.Features(), shippedClasses...)
		on := map[gpu.PCIAddress][]string{}
		var given []string // claims that can be counted twice
		for i, words := range rapid.Permutation(fleet).Draw(rt, "order") {
			for n := range min(rapid.IntRange(0, countedTwice).Draw(rt, "in flight"), len(given)) {
				again := rapid.SampledFrom(given).Draw(rt, "counted twice")
				_, err := node.Allocate(t.Context(), fmt.Sprintf("again-%d", n), claim(again))
				if err != nil && !errors.Is(err, allocator.ErrNoFit) {
					rt.Fatalf("%q: %v", again, err)
				}
			}
			results, err := node.Allocate(t.Context(), fmt.Sprintf("claim-%02d", i), claim(words))
			if err != nil {
				rt.Fatalf("%q, after %d others: %v\n%s", words, i, err, node)
			}
			for n := range countedTwice {
				node.Free(fmt.Sprintf("again-%d", n))
			}
			name, err := kind.Parse(results[0].Device)
			if err != nil {
				rt.Fatal(err)
			}
			on[name.Address] = append(on[name.Address], words)
			if !alone[words] {
				i := slices.IndexFunc(hardware.GPUs, func(g gpu.GPU) bool { return g.Address == name.Address })
				given = append(given, fmt.Sprintf("%s cel=device.attributes['gpu.nvidia.com'].uuid == '%s'", words, hardware.GPUs[i].UUID))
			}
		}
		gpus := map[string]int{}
		for _, pods := range on {
			slices.Sort(pods)
			gpus[strings.Join(slices.Compact(pods), " and ")]++
		}
		if diff := cmp.Diff(want, gpus); diff != "" {
			rt.Fatalf("GPUs by their use (-want +got)\n%s\n%s", diff, node)
		}
	})
}
