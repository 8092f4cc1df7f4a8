// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
)

// network is the pair of addresses that joins host and cluster.
type network struct {
	Host, Node netip.Addr
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
			return network{Host: first, Node: first.Next()}, nil
		}
	}
	return network{}, fmt.Errorf("network for cluster %s: all of %s is in use", name, linkPrefix)
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
	return fmt.Sprintf("https://%s:%d", n.Node, apiserverPort)
}

// link is the namespace as package host makes it. The zero network is enough
// to delete it.
func (l Layout) link(n network) host.Link {
	return host.Link{
		NetNS:  l.NetNS(),
		Veth:   l.Veth(),
		Host:   netip.PrefixFrom(n.Host, 30),
		Node:   netip.PrefixFrom(n.Node, 30),
		Routed: netip.MustParsePrefix(serviceCIDR),
	}
}
