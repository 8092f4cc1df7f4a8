// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

func testLayout(t *testing.T, name string) Layout {
	t.Helper()
	l, err := NewLayout(name, "/opt/bin")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNamesThatCannotWorkAreRefused(t *testing.T) {
	for _, name := range []string{"", "-a", "a-", "A", "a_b", "a/b", "a.b", "a.1", "a.10", "a.2.3", ".2", "sixteen-letters-"} {
		if _, err := NewLayout(name, "bin"); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	for _, name := range []string{"a", "default", "e2e", "0", "fifteen-letters", "a.2", "thirteen-name.9"} {
		if _, err := NewLayout(name, "bin"); err != nil {
			t.Error(err)
		}
	}
}

// The longest paths of sockets that other programs make up below ours.
func TestSocketsFitTheirLimits(t *testing.T) {
	l := testLayout(t, "fifteen-letters")
	shim := l.path("s", strings.Repeat("0", 64))
	info := l.info(network{}, Options{})
	registration := filepath.Join(info.PluginsRegistryDir, "gpu.nvidia.com-reg.sock")
	plugin := filepath.Join(info.PluginsDir, "gpu.nvidia.com", "dra.sock")
	for _, path := range []string{shim, registration, plugin, l.ContainerdSocket() + ".ttrpc"} {
		if len(path) > 107 {
			t.Errorf("%s has %d characters, a socket's path at most 107", path, len(path))
		}
	}
	if len(l.Veth()) > 15 {
		t.Errorf("interface name %s has %d characters, want at most 15", l.Veth(), len(l.Veth()))
	}
}

func TestANetworkInUseIsNotTaken(t *testing.T) {
	first, err := freeNetwork("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := freeNetwork("a", nil)
	if err != nil || again != first {
		t.Errorf("the same cluster got %v and then %v (%v)", first, again, err)
	}
	second, err := freeNetwork("a", []netip.Prefix{netip.PrefixFrom(first.Host, 30).Masked()})
	if err != nil || second == first {
		t.Errorf("got %v (%v) although it is in use", second, err)
	}
	if _, err := freeNetwork("a", []netip.Prefix{netip.MustParsePrefix("198.0.0.0/8")}); err == nil {
		t.Error("a network was found where none is free")
	}
}
