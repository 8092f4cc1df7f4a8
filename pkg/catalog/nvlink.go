package catalog

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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
			// Domains do not overlap, so the first member tells them apart.
			n.domain[member] = members[0].ShortName()
		}
	}
	for _, members := range gpu.NVLinkCliques(gpus) {
		for _, member := range members {
			n.cliques[member] = append(n.cliques[member], enumerate(members))
		}
	}
	return n
}

// describe adds the NVLink attributes of a GPU, with lists as such where the
// cluster takes list attributes.
func (n neighbourhood) describe(a attributes, g gpu.GPU, lists bool) {
	links := g.ActiveLinks()
	if links == 0 {
		return
	}
	a.number(v1alpha1.AttributeNVLinkLinks, links)
	a.name(v1alpha1.AttributeNVLinkDomain, n.domain[g.Address])

	peers := make([]gpu.PCIAddress, len(n.peers[g.Address]))
	devices := make([]string, len(peers))
	for i, peer := range n.peers[g.Address] {
		peers[i] = peer.Address
		devices[i] = peer.Address.DeviceName()
	}
	cliques := n.cliques[g.Address]
	if room := resourceapi.ResourceSliceMaxAttributeValuesPerDevice - len(a); !lists || len(devices)+len(cliques) > room {
		a.name(v1alpha1.AttributeNVLinkPeers, enumerate(peers))
		return
	}
	if len(devices) > 0 {
		a.names(v1alpha1.AttributeNVLinkPeers, devices)
	}
	if len(cliques) > 0 && !slices.Contains(cliques, "") {
		a.names(v1alpha1.AttributeNVLinkCliques, cliques)
	}
}

// enumerate lists GPUs in one attribute value: by their short names
// ("1b-00,4a-00"), by their buses ("1b,4a") where those would be too long, and
// not at all ("") where buses would be too long or leave a doubt.
func enumerate(addresses []gpu.PCIAddress) string {
	for _, spell := range []func(gpu.PCIAddress) string{gpu.PCIAddress.ShortName, busName} {
		names := make([]string, len(addresses))
		for i, address := range addresses {
			names[i] = spell(address)
		}
		list := strings.Join(names, ",")
		slices.Sort(names)
		if len(list) <= resourceapi.DeviceAttributeMaxValueLength && len(slices.Compact(names)) == len(addresses) {
			return list
		}
	}
	return ""
}

// busName is the bus of a GPU, with its domain where that is not zero.
func busName(address gpu.PCIAddress) string {
	if address.Domain == 0 {
		return fmt.Sprintf("%02x", address.Bus)
	}
	return fmt.Sprintf("%04x-%02x", address.Domain, address.Bus)
}
