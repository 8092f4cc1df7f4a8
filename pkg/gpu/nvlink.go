// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Peer is a GPU at the far end of NVLinks.
type Peer struct {
	Address PCIAddress
	// Links is the number of active links between the two GPUs. Behind NVSwitch,
	// it is the smaller of their two numbers of active links.
	Links int
}

// ActiveLinks returns the number of NVLinks of the GPU that are up.
func (g GPU) ActiveLinks() int {
	n := 0
	for _, link := range g.Links {
		if link.Active {
			n++
		}
	}
	return n
}

// BehindSwitch reports whether an active link of the GPU leads to NVSwitch. It returns nil
// if the GPU has no active link whose far end is known.
func (g GPU) BehindSwitch() *bool {
	var behind *bool
	for _, link := range g.Links {
		if link.Active && link.Remote != "" {
			is := link.Remote == RemoteSwitch || behind != nil && *behind
			behind = &is
		}
	}
	return behind
}

// NVLinkPeers returns the peers of every GPU that has any, each list in order of
// the address. GPUs are peers if active links join them directly, or if both have
// active links to NVSwitch: the switches of a node are connected with each other.
func NVLinkPeers(gpus []GPU) map[PCIAddress][]Peer {
	t := newTopology(gpus)
	peers := make(map[PCIAddress][]Peer)
	for i, address := range t.addresses {
		for j, links := range t.links[i] {
			if links > 0 {
				peers[address] = append(peers[address], Peer{Address: t.addresses[j], Links: links})
			}
		}
	}
	return peers
}

// CheckNVLinks returns an error for active links between GPUs that are not used as
// reported. Either only one end reports the link, or the other end is not among the GPUs.
// It returns nil if there are none. It ignores links to silent GPUs, whose ends are not
// known.
func CheckNVLinks(gpus []GPU, silent func(PCIAddress) bool) error {
	reported := make(map[PCIAddress]map[PCIAddress]int, len(gpus))
	for _, g := range gpus {
		reported[g.Address] = map[PCIAddress]int{}
		for _, link := range g.Links {
			if link.Active && link.Remote == RemoteGPU && link.RemoteAddress != nil {
				reported[g.Address][*link.RemoteAddress]++
			}
		}
	}
	var errs []error
	for _, from := range slices.SortedFunc(maps.Keys(reported), PCIAddress.Compare) {
		for _, to := range slices.SortedFunc(maps.Keys(reported[from]), PCIAddress.Compare) {
			there := reported[from][to]
			ends, known := reported[to]
			switch back := ends[from]; {
			case silent(to):
			case !known:
				errs = append(errs, fmt.Errorf("GPU at %s: NVLinks to %s: %w: %d reported, but it is not a GPU of this node: not used", from, to, ErrCorrupt, there))
			case back < there:
				errs = append(errs, fmt.Errorf("GPU at %s: NVLinks to %s: %w: %d reported, and %d at the other end: %d used", from, to, ErrCorrupt, there, back, back))
			}
		}
	}
	return errors.Join(errs...)
}

// NVLinkDomains divides the GPUs that have active links into groups in which every
// pair is linked: all GPUs behind NVSwitch, the two GPUs of a bridge, the quads of
// a DGX-1. Each GPU is in at most one group, and the division depends on the links
// alone: it takes the largest possible group first, and of groups of equal size the
// one with the lowest addresses. A GPU with active links but no ungrouped peer
// forms a separate group. Groups and their members are in order of the address.
func NVLinkDomains(gpus []GPU) [][]PCIAddress {
	t := newTopology(gpus)
	left := t.linked
	var groups [][]int
	for len(left) > 0 {
		largest := slices.MaxFunc(t.cliques(left), func(a, b []int) int {
			if len(a) != len(b) {
				return len(a) - len(b)
			}
			return slices.Compare(b, a)
		})
		groups = append(groups, largest)
		left = without(left, largest)
	}
	return t.named(groups)
}

// NVLinkCliques returns every maximal group in which every pair is linked. GPUs
// are all linked with each other if and only if one group holds them all. Unlike
// domains, cliques overlap: a GPU of a DGX-1 is in its quad and in a pair with its
// partner in the other quad. Groups and their members are in order of the address.
func NVLinkCliques(gpus []GPU) [][]PCIAddress {
	t := newTopology(gpus)
	return t.named(t.cliques(t.linked))
}

// topology is the graph of a node's NVLinks. GPUs are indices into addresses,
// which ascend, so that ordering indices orders addresses.
type topology struct {
	addresses []PCIAddress
	links     [][]int // active links per pair; symmetric
	linked    []int   // GPUs with active links towards other GPUs
}

func newTopology(gpus []GPU) topology {
	gpus = slices.SortedFunc(slices.Values(gpus), func(a, b GPU) int { return a.Address.Compare(b.Address) })
	t := topology{
		addresses: make([]PCIAddress, len(gpus)),
		links:     make([][]int, len(gpus)),
	}
	for i, g := range gpus {
		t.addresses[i] = g.Address
		t.links[i] = make([]int, len(gpus))
		if slices.ContainsFunc(g.Links, func(l Link) bool { return l.Active && l.Remote != RemoteCPU }) {
			t.linked = append(t.linked, i)
		}
	}
	for i, a := range gpus {
		for j, b := range gpus[:i] {
			// A link counts if both ends report it as up: the ends of a link that
			// goes down do not notice it at the same time.
			n := min(a.linksTo(b.Address), b.linksTo(a.Address)) + min(a.switchLinks(), b.switchLinks())
			t.links[i][j], t.links[j][i] = n, n
		}
	}
	return t
}

func (g GPU) linksTo(peer PCIAddress) int {
	n := 0
	for _, link := range g.Links {
		if link.Active && link.Remote == RemoteGPU && link.RemoteAddress != nil && *link.RemoteAddress == peer {
			n++
		}
	}
	return n
}

func (g GPU) switchLinks() int {
	n := 0
	for _, link := range g.Links {
		if link.Active && link.Remote == RemoteSwitch {
			n++
		}
	}
	return n
}

// cliques returns the maximal cliques among the nodes, ordered, each ascending.
func (t topology) cliques(nodes []int) [][]int {
	var found [][]int
	t.extend(nil, nodes, nil, &found)
	for _, clique := range found {
		slices.Sort(clique)
	}
	slices.SortFunc(found, slices.Compare)
	return found
}

// extend is Bron and Kerbosch's algorithm with a pivot. It is fast here: a
// machine's graph is complete behind NVSwitch and small otherwise.
func (t topology) extend(clique, candidates, excluded []int, found *[][]int) {
	if len(candidates) == 0 {
		if len(excluded) == 0 && len(clique) > 0 {
			*found = append(*found, slices.Clone(clique))
		}
		return
	}
	pivot := slices.MaxFunc(slices.Concat(candidates, excluded), func(a, b int) int {
		return len(t.neighbours(a, candidates)) - len(t.neighbours(b, candidates))
	})
	for _, v := range slices.Clone(candidates) {
		if t.links[pivot][v] > 0 {
			continue
		}
		t.extend(append(slices.Clone(clique), v), t.neighbours(v, candidates), t.neighbours(v, excluded), found)
		candidates = without(candidates, []int{v})
		excluded = append(slices.Clone(excluded), v)
	}
}

func (t topology) neighbours(vertex int, among []int) []int {
	var linked []int
	for _, v := range among {
		if t.links[vertex][v] > 0 {
			linked = append(linked, v)
		}
	}
	return linked
}

func (t topology) named(groups [][]int) [][]PCIAddress {
	slices.SortFunc(groups, slices.Compare)
	var named [][]PCIAddress
	for _, group := range groups {
		addresses := make([]PCIAddress, len(group))
		for i, member := range group {
			addresses[i] = t.addresses[member]
		}
		named = append(named, addresses)
	}
	return named
}

func without(all, gone []int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(v int) bool { return slices.Contains(gone, v) })
}
