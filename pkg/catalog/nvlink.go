// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// neighbourhood holds the NVLink peers and groups of a node's GPUs.
type neighbourhood struct {
	peers   map[gpu.PCIAddress][]gpu.Peer
	domain  map[gpu.PCIAddress]string
	cliques map[gpu.PCIAddress][]string
}

func newNeighbourhood(gpus []gpu.GPU) neighbourhood {
	n := neighbourhood{
		peers:   gpu.NVLinkPeers(gpus),
		domain:  make(map[gpu.PCIAddress]string),
		cliques: make(map[gpu.PCIAddress][]string),
	}
	for _, members := range gpu.NVLinkDomains(gpus) {
		for _, member := range members {
			// Domains do not overlap, so the first member identifies its domain.
			n.domain[member] = members[0].ShortName()
		}
	}
	for _, members := range gpu.NVLinkCliques(gpus) {
		for _, member := range members {
			n.cliques[member] = append(n.cliques[member], kind.Enumerate(members))
		}
	}
	return n
}

// linksOf returns how the GPU at the address is linked.
func (n neighbourhood) linksOf(address gpu.PCIAddress) kind.NVLink {
	peers := make([]gpu.PCIAddress, len(n.peers[address]))
	for i, peer := range n.peers[address] {
		peers[i] = peer.Address
	}
	return kind.NVLink{Domain: n.domain[address], Peers: peers, Cliques: n.cliques[address]}
}
