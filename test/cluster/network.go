// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
)

// network is the pair of addresses that joins a node to the host, or a further node to the first.
type network struct {
	Host, Node netip.Addr
	// Server is the address of the API server, which is the first node's.
	Server netip.Addr
}

// linkPrefix is the range for benchmarks of network devices (RFC 2544). No real
// network should use it.
const linkPrefix = "198.18.0.0/16"

// freeNetwork returns a pair of addresses that no interface of the host uses. The
// search begins at an address derived from the cluster's name, so that the cluster
// keeps its address if that is free.
func freeNetwork(name string, inUse []netip.Prefix) (network, error) {
	base := netip.MustParsePrefix(linkPrefix).Addr().As4()
	digest := fnv.New32a()
	digest.Write([]byte(name))
	for i := range uint32(256) {
		subnet := base
		subnet[2] = byte((digest.Sum32() + i) % 256)
		prefix := netip.PrefixFrom(netip.AddrFrom4(subnet), 30)
		free := true
		for _, used := range inUse {
			free = free && !used.Overlaps(prefix)
		}
		if free {
			first := prefix.Addr().Next()
			return network{Host: first, Node: first.Next(), Server: first.Next()}, nil
		}
	}
	return network{}, fmt.Errorf("network for cluster %s: all of %s is in use", name, linkPrefix)
}

// newNetwork returns the pair of addresses of a node that is down.
func newNetwork(l Layout) (network, error) {
	if l.isFirst() {
		used, err := addressesInUse()
		if err != nil {
			return network{}, err
		}
		return freeNetwork(l.Name, used)
	}
	info, err := ReadInfo(l.first())
	if err != nil {
		return network{}, err
	}
	server, err := netip.ParseAddr(info.NodeIP)
	if err != nil {
		return network{}, fmt.Errorf("cluster %s: address of its first node: %w", l.Name, err)
	}
	return furtherNetwork(l, server), nil
}

// furtherNetwork returns the pair of a further node. All pairs of a cluster are in one range of 256 addresses.
func furtherNetwork(l Layout, server netip.Addr) network {
	host := server.As4()
	host[3] = byte(4*(l.number()-1) + 1)
	first := netip.AddrFrom4(host)
	return network{Host: first, Node: first.Next(), Server: server}
}

// podRange returns the addresses of the node's pods.
func (l Layout) podRange() netip.Prefix {
	address := netip.MustParsePrefix(podCIDR).Addr().As4()
	address[2] = byte(l.number() - 1)
	return netip.PrefixFrom(netip.AddrFrom4(address), 24)
}

// addressesInUse returns the IPv4 prefixes of the host's interfaces.
func addressesInUse() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	var prefixes []netip.Prefix
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().Is4() {
			prefixes = append(prefixes, prefix.Masked())
		}
	}
	return prefixes, nil
}

func (n network) apiserverURL() string {
	return fmt.Sprintf("https://%s:%d", n.Server, apiserverPort)
}

// link is the namespace as package host makes it. The zero network is enough
// to delete it.
func (l Layout) link(n network) host.Link {
	link := host.Link{
		NetNS: l.NetNS(),
		Veth:  l.Veth(),
		Host:  netip.PrefixFrom(n.Host, 30),
		Node:  netip.PrefixFrom(n.Node, 30),
	}
	if l.isFirst() {
		// The further nodes.
		link.Behind = netip.PrefixFrom(n.Node, 24).Masked()
		// There is no default route: nothing of a test cluster should reach the outside.
		link.Routed = netip.MustParsePrefix(serviceCIDR)
	} else {
		link.Hub = l.first().NetNS()
		link.Behind = l.podRange()
		link.Routed = netip.MustParsePrefix("0.0.0.0/0")
	}
	return link
}
