// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// machine builds GPUs at the given buses without links.
func machine(buses ...uint8) []gpu.GPU {
	gpus := make([]gpu.GPU, len(buses))
	for i, bus := range buses {
		gpus[i] = gpu.GPU{Address: gpu.PCIAddress{Bus: bus}, Index: i}
	}
	return gpus
}

// join puts n links between two GPUs.
func join(gpus []gpu.GPU, a, b, n int) {
	for range n {
		addLink(&gpus[a], gpu.RemoteGPU, &gpus[b].Address)
		addLink(&gpus[b], gpu.RemoteGPU, &gpus[a].Address)
	}
}

// joinSwitch puts n links to NVSwitch on every GPU.
func joinSwitch(gpus []gpu.GPU, n int) {
	for i := range gpus {
		for range n {
			addLink(&gpus[i], gpu.RemoteSwitch, nil)
		}
	}
}

func addLink(g *gpu.GPU, remote gpu.LinkRemote, address *gpu.PCIAddress) {
	g.Links = append(g.Links, gpu.Link{Number: len(g.Links), Active: true, Remote: remote, RemoteAddress: address})
}

// cut takes down the links between two GPUs at the first one's end only, which
// must be enough.
func cut(gpus []gpu.GPU, a, b int) {
	for i, link := range gpus[a].Links {
		if link.RemoteAddress != nil && *link.RemoteAddress == gpus[b].Address {
			gpus[a].Links[i].Active = false
		}
	}
}

func dgx1() []gpu.GPU {
	gpus := machine(0x06, 0x07, 0x0a, 0x0b, 0x85, 0x86, 0x89, 0x8a)
	for _, l := range [][3]int{
		{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
		{2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2},
	} {
		join(gpus, l[0], l[1], l[2])
	}
	return gpus
}

func dgxH100() []gpu.GPU {
	gpus := machine(0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf)
	joinSwitch(gpus, 18)
	return gpus
}

func bridges() []gpu.GPU {
	gpus := machine(0x17, 0x31, 0xb1, 0xca)
	join(gpus, 0, 1, 4)
	join(gpus, 2, 3, 4)
	return gpus
}

// render returns one line per group, with each GPU by its bus.
func render(groups [][]gpu.PCIAddress) string {
	var lines []string
	for _, group := range groups {
		var names []string
		for _, address := range group {
			names = append(names, fmt.Sprintf("%02x", address.Bus))
		}
		lines = append(lines, strings.Join(names, " "))
	}
	return strings.Join(lines, "\n")
}

func TestNVLinkGroups(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus                func() []gpu.GPU
		domains, allCliques string
	}{
		"no GPU, no group": {
			gpus: func() []gpu.GPU { return nil },
		},
		"GPUs without links are in no group": {
			gpus: func() []gpu.GPU { return machine(1, 2, 3) },
		},
		"all GPUs behind NVSwitch are one group": {
			gpus:       dgxH100,
			domains:    "1b 43 52 61 9d c3 d1 df",
			allCliques: "1b 43 52 61 9d c3 d1 df",
		},
		"a GPU whose links are all down leaves its switch group": {
			gpus: func() []gpu.GPU {
				gpus := dgxH100()
				for i := range gpus[0].Links {
					gpus[0].Links[i].Active = false
				}
				return gpus
			},
			domains:    "43 52 61 9d c3 d1 df",
			allCliques: "43 52 61 9d c3 d1 df",
		},
		"bridge pairs are a group each": {
			gpus:       bridges,
			domains:    "17 31\nb1 ca",
			allCliques: "17 31\nb1 ca",
		},
		"a broken bridge leaves no group": {
			gpus:       func() []gpu.GPU { g := bridges(); cut(g, 0, 1); cut(g, 1, 0); return g },
			domains:    "b1 ca",
			allCliques: "b1 ca",
		},
		"a bridge that only one end reports up joins no GPUs": {
			gpus:       func() []gpu.GPU { g := bridges(); cut(g, 0, 1); return g },
			domains:    "31\nb1 ca",
			allCliques: "31\nb1 ca",
		},
		"the quads of a DGX-1": {
			gpus:       dgx1,
			domains:    "06 07 0a 0b\n85 86 89 8a",
			allCliques: "06 07 0a 0b\n06 85\n07 86\n0a 89\n0b 8a\n85 86 89 8a",
		},
		"a broken pair in a quad leaves a group of three and a GPU alone": {
			gpus:       func() []gpu.GPU { g := dgx1(); cut(g, 0, 1); return g },
			domains:    "06 0a 0b\n07\n85 86 89 8a",
			allCliques: "06 0a 0b\n06 85\n07 0a 0b\n07 86\n0a 89\n0b 8a\n85 86 89 8a",
		},
		"links to CPUs join no GPUs": {
			gpus: func() []gpu.GPU {
				gpus := machine(1, 2)
				addLink(&gpus[0], gpu.RemoteCPU, nil)
				addLink(&gpus[1], gpu.RemoteCPU, nil)
				return gpus
			},
		},
		"links with an unknown far end join no GPUs": {
			gpus: func() []gpu.GPU {
				gpus := machine(1, 2)
				addLink(&gpus[0], gpu.RemoteGPU, nil)
				addLink(&gpus[1], gpu.RemoteGPU, nil)
				return gpus
			},
			domains:    "01\n02",
			allCliques: "01\n02",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "domains", tc.domains, render(gpu.NVLinkDomains(tc.gpus())))
			require.Same(t, "cliques", tc.allCliques, render(gpu.NVLinkCliques(tc.gpus())))
		})
	}
}

func TestNVLinkPeers(t *testing.T) {
	peersOf := func(gpus []gpu.GPU, i int) string {
		var names []string
		for _, peer := range gpu.NVLinkPeers(gpus)[gpus[i].Address] {
			names = append(names, fmt.Sprintf("%02x×%d", peer.Address.Bus, peer.Links))
		}
		return strings.Join(names, " ")
	}
	oneLinkDown := dgxH100()
	oneLinkDown[1].Links[0].Active = false
	for name, tc := range map[string]struct {
		gpus []gpu.GPU
		of   int
		want string
	}{
		"a bridge":                        {gpus: bridges(), of: 1, want: "17×4"},
		"a corner of a DGX-1":             {gpus: dgx1(), of: 0, want: "07×1 0a×1 0b×2 85×2"},
		"behind NVSwitch":                 {gpus: dgxH100(), of: 0, want: "43×18 52×18 61×18 9d×18 c3×18 d1×18 df×18"},
		"a peer with one link down":       {gpus: oneLinkDown, of: 0, want: "43×17 52×18 61×18 9d×18 c3×18 d1×18 df×18"},
		"a GPU without links has no peer": {gpus: machine(1, 2), of: 0, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "peers", tc.want, peersOf(tc.gpus, tc.of))
		})
	}
}

// TestNVLinkGroupsOfAnyGraph checks on random graphs: every linked GPU is in one
// domain, every pair in a domain or clique is linked, every linked pair is in a
// clique, and the order in which the driver lists its GPUs does not matter.
func TestNVLinkGroupsOfAnyGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 10).Draw(t, "gpus")
		buses := make([]uint8, n)
		for i := range buses {
			buses[i] = uint8(i + 1)
		}
		gpus := machine(buses...)
		for a := range n {
			for b := range a {
				join(gpus, a, b, rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "links"))
			}
		}
		linked := map[[2]gpu.PCIAddress]bool{}
		for address, peers := range gpu.NVLinkPeers(gpus) {
			for _, peer := range peers {
				linked[[2]gpu.PCIAddress{address, peer.Address}] = true
			}
		}
		inClique := map[[2]gpu.PCIAddress]bool{}
		for kind, groups := range map[string][][]gpu.PCIAddress{"domain": gpu.NVLinkDomains(gpus), "clique": gpu.NVLinkCliques(gpus)} {
			seen := map[gpu.PCIAddress]bool{}
			for _, group := range groups {
				for _, a := range group {
					if kind == "domain" && seen[a] {
						t.Fatalf("%v is in two domains", a)
					}
					seen[a] = true
					for _, b := range group {
						if a != b && !linked[[2]gpu.PCIAddress{a, b}] {
							t.Fatalf("%s holds %v and %v, which are not linked", kind, a, b)
						}
						if kind == "clique" {
							inClique[[2]gpu.PCIAddress{a, b}] = true
						}
					}
				}
			}
			for _, g := range gpus {
				if seen[g.Address] != (g.ActiveLinks() > 0) {
					t.Fatalf("%v has %d links and is in a %s: %v", g.Address, g.ActiveLinks(), kind, seen[g.Address])
				}
			}
		}
		for pair := range linked {
			if !inClique[pair] {
				t.Fatalf("%v are linked and in no clique together", pair)
			}
		}
		shuffled := rapid.Permutation(gpus).Draw(t, "order")
		if diff := cmp.Diff(render(gpu.NVLinkDomains(gpus)), render(gpu.NVLinkDomains(shuffled))); diff != "" {
			t.Fatalf("domains change with the order of the GPUs (-want +got):\n%s", diff)
		}
	})
}
