// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/allocatortest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// size is a node of a size that no built-in model has: GPUs of a model at other
// addresses, the first half near NUMA node 0 and the rest near NUMA node 1.
type size struct {
	model     string
	addresses []string
	// links returns the links of each GPU; nil for GPUs without NVLink.
	links func(addresses []string, gpu int) []nvmlsim.Links
	// linked are the groups of linked GPUs that fit on the empty node, by the number
	// of GPUs in a group.
	linked map[int]int
}

func sizes() map[string]size {
	return map[string]size{
		"1-t4": {model: "t4", addresses: []string{"0000:3b:00.0"}},
		"2-a30": {
			model: "a30-bridge", addresses: []string{"0000:17:00.0", "0000:ca:00.0"},
			links: meshedBy(4), linked: map[int]int{2: 1},
		},
		"4-a100": {
			model: "dgx-a100", addresses: []string{"0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0"},
			links: meshedBy(4), linked: map[int]int{2: 2, 4: 1},
		},
		"10-l40s": {model: "l40s", addresses: onBuses("0000", 0x18, 0x98)},
		"10-a100": {model: "dgx-a100", addresses: onBuses("0000", 0x18, 0x98)},
		// A DGX-2: two boards with eight GPUs and six switches each.
		"16-v100": {
			model: "dgx1-v100",
			addresses: []string{
				"0000:34:00.0", "0000:36:00.0", "0000:39:00.0", "0000:3b:00.0", "0000:57:00.0", "0000:59:00.0", "0000:5c:00.0", "0000:5e:00.0",
				"0000:b7:00.0", "0000:b9:00.0", "0000:bc:00.0", "0000:be:00.0", "0000:e0:00.0", "0000:e2:00.0", "0000:e5:00.0", "0000:e7:00.0",
			},
			links: func([]string, int) []nvmlsim.Links {
				return []nvmlsim.Links{{Numbers: "0-5", Remote: "Switch", Address: "0000:61:00.0"}}
			},
			linked: map[int]int{2: 8, 4: 4, 8: 2, 16: 1},
		},
		// Each PCI domain has the same buses.
		"16-a100": {model: "dgx-a100", addresses: slices.Concat(onBuses("0000", 0x10, 0x80)[1:9], onBuses("0001", 0x10, 0x80)[1:9])},
	}
}

// onBuses returns five addresses from each of the two buses on.
func onBuses(domain string, first, second int) []string {
	var all []string
	for _, bus := range []int{first, second} {
		for i := range 5 {
			all = append(all, fmt.Sprintf("%s:%02x:00.0", domain, bus+i))
		}
	}
	return all
}

// meshedBy links every pair of GPUs directly, n times.
func meshedBy(n int) func([]string, int) []nvmlsim.Links {
	return func(addresses []string, gpu int) []nvmlsim.Links {
		var all []nvmlsim.Links
		for other, address := range addresses {
			if other != gpu {
				first := n * len(all)
				all = append(all, nvmlsim.Links{Numbers: fmt.Sprintf("%d-%d", first, first+n-1), Remote: "GPU", Address: address})
			}
		}
		return all
	}
}

// loadModel returns a model of the simulator or the model of a size.
func loadModel(t testing.TB, name string) *nvmlsim.Model {
	t.Helper()
	s, sized := sizes()[name]
	if !sized {
		s.model = name
	}
	m, err := nvmlsim.LoadModel(s.model)
	if err != nil {
		t.Fatal(err)
	}
	if sized {
		m.Name = name
		kind := m.GPUs[0].Kind
		m.GPUs, m.NICs = nil, nil
		for i, address := range s.addresses {
			links := []nvmlsim.Links{}
			if s.links != nil {
				links = s.links(s.addresses, i)
			}
			m.GPUs = append(m.GPUs, nvmlsim.GPU{Kind: kind, Address: address, NUMANode: ptr(2 * i / len(s.addresses)), Links: links})
		}
	}
	return m
}

// TestNodesOfEachSize allocates every GPU of nodes with 1 to 16 GPUs in each form
// that the hardware has.
func TestNodesOfEachSize(t *testing.T) {
	t.Parallel()
	for name, size := range sizes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := simulated(t, name)
			if len(node.GPUs) != len(size.addresses) {
				t.Fatalf("%d GPUs, want %d", len(node.GPUs), len(size.addresses))
			}
			offers := map[string]catalog.Inputs{
				"share": sharing(), "all": watched(seating(slicing(cutting(catalog.MIGProfiles{All: true})))),
			}
			for offer, c := range offers {
				t.Run(offer, func(t *testing.T) {
					checkSlices(t, catalog.New(c).Resources(node, nil))
					checkWholes(t, c, node)
					checkShares(t, c, node)
					checkLinked(t, c, node, size.linked)
					if len(node.GPUs[0].MIG.Profiles) > 0 && c.Offer.Partitions() {
						checkPartitions(t, c, node)
					}
				})
			}
		})
	}
}

// checkSlices checks the names of devices, the API's limits, and that each consumed
// counter exists.
func checkSlices(t *testing.T, resources resourceslice.DriverResources) {
	t.Helper()
	names := map[string]bool{}
	totals := map[string]map[string]resourceapi.Counter{}
	for _, slice := range resources.Pools["node-1"].Slices {
		if n := len(slice.SharedCounters); n > resourceapi.ResourceSliceMaxCounterSets || n > 0 && len(slice.Devices) > 0 {
			t.Errorf("a slice has %d counter sets and %d devices", n, len(slice.Devices))
		}
		if n := len(slice.Devices); n > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures {
			t.Errorf("a slice has %d devices, which may get taints", n)
		}
		for _, set := range slice.SharedCounters {
			if totals[set.Name] != nil {
				t.Errorf("two counter sets are named %s", set.Name)
			}
			totals[set.Name] = set.Counters
		}
	}
	for _, slice := range resources.Pools["node-1"].Slices {
		for _, device := range slice.Devices {
			if names[device.Name] {
				t.Errorf("two devices are named %s", device.Name)
			}
			names[device.Name] = true
			for _, consumed := range device.ConsumesCounters {
				for counter, n := range consumed.Counters {
					if total, known := totals[consumed.CounterSet][counter]; !known || total.Value.Cmp(n.Value) < 0 {
						t.Errorf("%s consumes %s of %s/%s, which has %s", device.Name, n.Value.String(), consumed.CounterSet, counter, total.Value.String())
					}
				}
			}
		}
	}
}

// fits returns how many claims of the words the node takes one after the other, at
// most limit. It also returns the devices of these claims.
func fits(t *testing.T, node *allocatortest.Node, words string, limit int) (int, []string) {
	t.Helper()
	var devices []string
	for n := range limit {
		results, err := node.Allocate(t.Context(), fmt.Sprint(words, " ", n), claim(words))
		if errors.Is(err, allocatortest.ErrNoFit) {
			return n, devices
		}
		if err != nil {
			t.Fatalf("%s: %v", words, err)
		}
		for _, result := range results {
			devices = append(devices, result.Device)
		}
	}
	return limit, devices
}

func checkWholes(t *testing.T, c catalog.Inputs, hardware gpu.Node) {
	t.Helper()
	all := len(hardware.GPUs)
	node := schedulable(t, c, hardware, nil)
	if n, got := fits(t, node, "", all+1); n != all || len(slices.Compact(slices.Sorted(slices.Values(got)))) != all {
		t.Errorf("%d claims for a whole GPU fit: %v", n, got)
	}
	together := fmt.Sprintf("count=%d", all)
	if n, _ := fits(t, schedulable(t, c, hardware, nil), together, 2); n != 1 {
		t.Errorf("%d claims with %s fit", n, together)
	}
}

// checkShares fills each GPU with two shares of all its memory.
func checkShares(t *testing.T, c catalog.Inputs, hardware gpu.Node) {
	t.Helper()
	all := len(hardware.GPUs)
	memory := devices(t, c, hardware, nil)[0].Capacity[v1alpha1.CapacityMemory].Value
	node := schedulable(t, c, hardware, nil)
	const rest = 2 << 30
	large := fmt.Sprintf("memory=%d", memory.Value()-rest)
	if n, _ := fits(t, node, large, all+1); n != all {
		t.Errorf("%d claims with %s fit", n, large)
	}
	if n, _ := fits(t, node, fmt.Sprintf("memory=%d", rest), all+1); n != all {
		t.Errorf("%d claims for the rest of a GPU fit", n)
	}
	if n, _ := fits(t, node, "memory=1Mi", 1); n != 0 {
		t.Error("another share fits on a full node")
	}
}

func checkLinked(t *testing.T, c catalog.Inputs, hardware gpu.Node, want map[int]int) {
	t.Helper()
	for _, n := range []int{2, 4, 8, 16} {
		words := fmt.Sprintf("count=%d match=nvlinkDomain", n)
		if got, _ := fits(t, schedulable(t, c, hardware, nil), words, len(hardware.GPUs)); got != want[n] {
			t.Errorf("%d claims with %s fit, want %d", got, words, want[n])
		}
	}
}

// checkPartitions fills all GPUs but one with MIG devices of each profile. They keep
// whole GPUs out and leave the last GPU whole.
func checkPartitions(t *testing.T, c catalog.Inputs, hardware gpu.Node) {
	t.Helper()
	all := len(hardware.GPUs)
	for _, p := range hardware.GPUs[0].MIG.Profiles {
		node := schedulable(t, c, hardware, nil)
		words := fmt.Sprintf("class=mig profile=%s", p.Profile)
		n, got := fits(t, node, words, all*p.MaxInstances+1)
		if n != all*p.MaxInstances || len(slices.Compact(slices.Sorted(slices.Values(got)))) != n {
			t.Errorf("%d claims for %s fit, want %d on each of %d GPUs", n, p.Profile, p.MaxInstances, all)
		}
		if n, _ := fits(t, node, "", 1); n != 0 {
			t.Errorf("a whole GPU fits on a node that is full of %s", p.Profile)
		}
		for i := range p.MaxInstances {
			node.Free(fmt.Sprint(words, " ", n-1-i))
		}
		if n, whole := fits(t, node, "", 2); n != 1 {
			t.Errorf("with %s on the other GPUs, %v fit", p.Profile, whole)
		}
	}
}
