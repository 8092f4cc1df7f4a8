// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// seatsOf offers a number of seats of each GPU.
func seatsOf(n int) catalog.Inputs {
	c := seating(sharing())
	c.Shares.Units, c.Shares.Smallest = kind.Numbers{kind.Seat: n}, 1<<30
	return c
}

func TestOfferedSeats(t *testing.T) {
	exclusive, noCounters, noMPS, both := seatsOf(4), seatsOf(4), seatsOf(4), slicing(seatsOf(4))
	exclusive.Exclusive, noCounters.NoCounters, noMPS.Shares.MPS = true, true, false
	changed := func(change func(*gpu.GPU)) gpu.Node {
		node := h100(t, 2)
		change(&node.GPUs[0])
		return node
	}
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		held    catalog.Held
		want    string
		told    string
	}{
		"with time slices": {catalog: both, node: h100(t, 2), want: "1b-00 43-00 43-00-ts 43-00-seat 1b-00-ts 1b-00-seat\n{1b-00 1} {43-00 1}"},
		"without MPS there are none": {
			catalog: noMPS, node: h100(t, 1), want: "1b-00", told: "GPU at 0000:1b:00.0: it has no seats: MPS limits them, and no MPS daemons run on this node",
		},
		"without consumable capacity there are none": {catalog: exclusive, node: h100(t, 1), want: "1b-00"},
		"without counters there are none":            {catalog: noCounters, node: h100(t, 1), want: "1b-00"},
		"a GPU before Volta": {
			catalog: seatsOf(4), node: changed(func(g *gpu.GPU) { g.ComputeCapability = gpu.Version{Major: 6} }),
			want: "1b-00 43-00 43-00-seat\n{43-00 1}", told: "only GPUs with the compute capability 7.0 (Volta) or newer",
		},
		"a GPU too small for its seats": {
			catalog: seatsOf(48), node: changed(func(g *gpu.GPU) { g.MemoryBytes = 40 << 30 }),
			want: "1b-00 43-00 43-00-seat\n{43-00 1}", told: "each of 48 would have 853Mi of memory, and the smallest share on this node has 1Gi; offer fewer seats",
		},
		"a GPU that does not answer": {
			catalog: seatsOf(4), node: changed(func(g *gpu.GPU) { g.MemoryBytes = 0 }), want: "1b-00 43-00 43-00-seat\n{43-00 1}", told: "its memory is not known",
		},
		"seats that a claim holds stay": {
			catalog: sharing(), node: h100(t, 2), held: catalog.Held{kindtest.Name("gpu-43-00-seat"): true}, want: "1b-00 43-00 43-00-seat!withdrawn\n{43-00 1}",
		},
		"an exclusive mode admits clients of MPS": {
			catalog: both, node: changed(func(g *gpu.GPU) { g.ComputeMode = gpu.ComputeModeExclusiveProcess }),
			want: "1b-00 43-00 43-00-ts 43-00-seat 1b-00-ts!compute-mode 1b-00-seat\n{1b-00 1} {43-00 1}", told: "by time slices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "slices", tc.want, inSlices(tc.catalog, tc.node, tc.held))
			told := strings.Join(catalog.New(tc.catalog).Withheld(tc.node), "\n")
			if tc.told == "" && told != "" || !strings.Contains(told, tc.told) {
				t.Errorf("told %q, want %q", told, tc.told)
			}
		})
	}
}

func TestTheShareOfASeat(t *testing.T) {
	all := resource.MustParse("81559Mi")
	for words, want := range map[string]kind.Share{
		"4 seats=1":   {Memory: 20389 << 20, Compute: 25},
		"4 seats=4":   {Memory: 4 * 20389 << 20, Compute: 100},
		"3 seats=2":   {Memory: 2 * 27186 << 20, Compute: 66},
		"48 seats=1":  {Memory: 1699 << 20, Compute: 2},
		"48 seats=47": {Memory: 47 * 1699 << 20, Compute: 97},
	} {
		var n int
		var words2 string
		_, err := fmt.Sscan(words, &n, &words2)
		must(t, err)
		got, err := catalog.ShareOffer{Units: kind.Numbers{kind.Seat: n}}.Share(kind.Seat, all, consumed(words2))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", words, err, diff)
		}
	}
	for _, words := range []string{"", "seats=0", "seats=5", "seats=1500m", "seats=-1"} {
		_, err := (catalog.ShareOffer{}).Share(kind.Seat, all, consumed(words))
		require.Error(t, "consumed "+words, err, gpu.ErrInvalid, "from 1 to 4")
	}
}

func TestTheSchedulerAllocatesSeats(t *testing.T) {
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		claims  []string
		want    string
	}{
		"seats fill the last GPU before they begin another": {
			seatsOf(2), h100(t, 2), []string{"class=seat", "", "class=seat", "class=seat"},
			"a 43-00-seat 0 1\nb 1b-00 81559Mi\nc 43-00-seat 0 1\nd does not fit",
		},
		"a GPU in seats is neither whole nor in shares, slots or parts": {
			slicing(seating(cutting(catalog.MIGProfiles{}))), first(t, 1, "dgx-h100"), []string{"class=seat seats=3", "", "memory=1Gi", "class=timeslice", "class=mig profile=1g.10gb", "class=seat seats=2", "class=seat"},
			"a 1b-00-seat 0 3\nb does not fit\nc does not fit\nd does not fit\ne does not fit\nf does not fit\ng 1b-00-seat 0 1",
		},
		"nor a GPU in time slices in seats": {
			slicing(seatsOf(4)), h100(t, 1), []string{"class=timeslice", "class=seat"}, "a 1b-00-ts 0 1\nb does not fit",
		},
		"memory of a seat is not for requests": {seatsOf(4), h100(t, 1), []string{"class=seat memory=10Gi", "class=seat seats=1 memory=1Mi"}, "a does not fit\nb does not fit"},
		"but for selectors": {
			seatsOf(4), h100(t, 1), []string{"class=seat cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('20Gi')) > 0", "class=seat cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('19Gi')) > 0"},
			"a does not fit\nb 1b-00-seat 0 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var claims []resourceapi.DeviceClaim
			for _, words := range tc.claims {
				claims = append(claims, claim(words))
			}
			require.Same(t, "allocations", tc.want, allocateAll(t, schedulable(t, tc.catalog, tc.node, nil), claims))
		})
	}
}
