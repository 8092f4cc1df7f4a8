// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const netnsDir = "/run/netns"

// Link is a network namespace joined to the host by a veth pair.
type Link struct {
	// NetNS is the namespace's name, Veth the name of the host's interface.
	NetNS, Veth string
	// Host and Node are the addresses of the two ends, in one prefix.
	Host, Node netip.Prefix
	// Routed is a range that must have a route inside the namespace. No interface has
	// an address of it.
	Routed netip.Prefix
}

// NetNSPath is where a named network namespace is mounted.
func NetNSPath(name string) string { return filepath.Join(netnsDir, name) }

// Create makes namespace and pair. It fails where one exists already.
func (l Link) Create(ctx context.Context) error {
	inside := func(args ...string) []string { return append([]string{"-n", l.NetNS}, args...) }
	for _, args := range [][]string{
		{"netns", "add", l.NetNS},
		{"link", "add", l.Veth, "type", "veth", "peer", "name", "eth0", "netns", l.NetNS},
		{"address", "add", l.Host.String(), "dev", l.Veth},
		{"link", "set", l.Veth, "up"},
		inside("link", "set", "lo", "up"),
		inside("address", "add", l.Node.String(), "dev", "eth0"),
		inside("link", "set", "eth0", "up"),
		// The kernel wants a route before it asks iptables, which then sends
		// the packet elsewhere. There is no default route: nothing of a test
		// cluster should reach the outside.
		inside("route", "add", l.Routed.String(), "via", l.Host.Addr().String()),
	} {
		if _, err := Run(ctx, "ip", args...); err != nil {
			return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
		}
	}
	// /proc/sys/net shows the reader's namespace.
	if _, err := Run(ctx, "nsenter", "--net="+NetNSPath(l.NetNS), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
		return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
	}
	return nil
}

// Delete removes namespace and pair. Neither need exist.
func (l Link) Delete(ctx context.Context) error {
	if _, err := net.InterfaceByName(l.Veth); err == nil {
		if _, err := Run(ctx, "ip", "link", "delete", l.Veth); err != nil {
			return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
		}
	}
	if _, err := os.Stat(NetNSPath(l.NetNS)); err == nil {
		if _, err := Run(ctx, "ip", "netns", "delete", l.NetNS); err != nil {
			return fmt.Errorf("network namespace %s: %w", l.NetNS, err)
		}
	}
	return dropEmptyNetNSDir()
}

// dropEmptyNetNSDir undoes what the first "ip netns add" on a machine does: it
// mounts the directory onto itself and leaves that behind.
func dropEmptyNetNSDir() error {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Unmount(netnsDir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", netnsDir, err)
	}
	return os.Remove(netnsDir)
}

// NetNSWithPrefix lists the named network namespaces that begin so.
func NetNSWithPrefix(prefix string) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}
