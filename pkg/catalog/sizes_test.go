// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// size is a node of a size that no built-in model has: GPUs of a model at other
// addresses, the first half near NUMA node 0 and the rest near NUMA node 1.
type size struct {
	model     string
	addresses []string
	// links returns the links of each GPU; nil for GPUs without NVLink.
	links func(addresses []string, gpu int) []nvmlsim.Links
}

func sizes() map[string]size {
	return map[string]size{
		"1-t4": {model: "t4", addresses: []string{"0000:3b:00.0"}},
		"2-a30": {
			model: "a30-bridge", addresses: []string{"0000:17:00.0", "0000:ca:00.0"},
			links: meshedBy(4),
		},
		"4-a100": {
			model: "dgx-a100", addresses: []string{"0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0"},
			links: meshedBy(4),
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
	must(t, err)
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
