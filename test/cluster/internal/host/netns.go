// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Link is a network namespace joined to the host by a veth pair.
type Link struct {
	// NetNS is the file that the namespace is mounted on, Veth the name of the host's interface.
	NetNS, Veth string
	// Host and Node are the addresses of the two ends, in one prefix.
	Host, Node netip.Prefix
	// Routed is a range that must have a route inside the namespace. No interface has
	// an address of it.
	Routed netip.Prefix
}

// Create makes namespace and pair. It fails where one exists already.
// The namespace has no name for ip(8), whose folder is the machine's.
func (l Link) Create(ctx context.Context) error {
	if err := os.WriteFile(l.NetNS, nil, 0o600); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	inside := func(args ...string) []string { return append([]string{"nsenter", "--net=" + l.NetNS}, args...) }
	for _, args := range [][]string{
		{"unshare", "--net=" + l.NetNS, "true"},
		inside("ip", "link", "add", "eth0", "type", "veth", "peer", "name", l.Veth, "netns", strconv.Itoa(os.Getpid())),
		{"ip", "address", "add", l.Host.String(), "dev", l.Veth},
		{"ip", "link", "set", l.Veth, "up"},
		inside("ip", "link", "set", "lo", "up"),
		inside("ip", "address", "add", l.Node.String(), "dev", "eth0"),
		inside("ip", "link", "set", "eth0", "up"),
		// The kernel wants a route before it asks iptables, which then sends
		// the packet elsewhere. There is no default route: nothing of a test
		// cluster should reach the outside.
		inside("ip", "route", "add", l.Routed.String(), "via", l.Host.Addr().String()),
		// /proc/sys/net shows the reader's namespace.
		inside("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"),
	} {
		if _, err := Run(ctx, args[0], args[1:]...); err != nil {
			return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
		}
	}
	return nil
}

// Delete removes the pair. The namespace ends with its mount and its processes.
func (l Link) Delete(ctx context.Context) error {
	if _, err := net.InterfaceByName(l.Veth); err != nil {
		return nil //nolint:nilerr // there is none
	}
	_, err := Run(ctx, "ip", "link", "delete", l.Veth)
	if _, gone := net.InterfaceByName(l.Veth); err != nil && gone == nil {
		return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
	}
	return nil
}

// InterfacesWithPrefix lists the network interfaces of the machine that begin so.
func InterfacesWithPrefix(prefix string) ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range all {
		if strings.HasPrefix(i.Name, prefix) {
			names = append(names, i.Name)
		}
	}
	return names, nil
}
