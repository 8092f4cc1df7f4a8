// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Link is a network namespace joined by a veth pair to the host, or to another namespace.
type Link struct {
	// NetNS is the file that the namespace is mounted on, Veth the name of the far interface.
	NetNS, Veth string
	// Hub is the file of the namespace that has the far interface; empty for the host's.
	Hub string
	// Host and Node are the addresses of the far and the near end, in one prefix.
	Host, Node netip.Prefix
	// Routed is a range that the namespace reaches through the far end.
	Routed netip.Prefix
	// Behind is a range that the far end reaches through the namespace.
	Behind netip.Prefix
}

// Create makes namespace and pair. It fails where one exists already.
// The namespace has no name for ip(8), whose folder is the machine's.
func (l Link) Create(ctx context.Context) error {
	if err := os.WriteFile(l.NetNS, nil, 0o600); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	inside := func(args ...string) []string { return append([]string{"nsenter", "--net=" + l.NetNS, "--"}, args...) }
	for _, args := range [][]string{
		{"unshare", "--net=" + l.NetNS, "true"},
		inside("ip", "link", "add", "eth0", "type", "veth", "peer", "name", l.Veth, "netns", l.far()),
		l.outside("ip", "address", "add", l.Host.String(), "dev", l.Veth),
		l.outside("ip", "link", "set", l.Veth, "up"),
		l.outside("ip", "route", "add", l.Behind.String(), "via", l.Node.Addr().String()),
		inside("ip", "link", "set", "lo", "up"),
		inside("ip", "address", "add", l.Node.String(), "dev", "eth0"),
		inside("ip", "link", "set", "eth0", "up"),
		// The kernel wants a route before it asks iptables, which then sends
		// a packet for a service elsewhere.
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

// far returns the file of the namespace that has the far interface.
func (l Link) far() string { return cmp.Or(l.Hub, fmt.Sprintf("/proc/%d/ns/net", os.Getpid())) }

// outside returns a command for the namespace that has the far interface.
func (l Link) outside(args ...string) []string {
	return append([]string{"nsenter", "--net=" + l.far(), "--"}, args...)
}

// Delete removes the pair. The namespace ends with its mount and its processes.
func (l Link) Delete(ctx context.Context) error {
	command := func(args ...string) error {
		args = l.outside(args...)
		_, err := Run(ctx, args[0], args[1:]...)
		return err
	}
	err := command("ip", "link", "delete", l.Veth)
	if err != nil && command("ip", "link", "show", l.Veth) == nil {
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
