// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"
)

func rendered(t *testing.T, o Options) (Layout, map[string][]byte) {
	t.Helper()
	l := testLayout(t, "e2e")
	node := netip.MustParseAddr("198.18.1.2")
	files, err := renderConfig(l, network{Host: node.Prev(), Node: node, Server: node}, o, programs{runc: "/usr/sbin/runc", conmon: "/usr/bin/conmon"})
	if err != nil {
		t.Fatal(err)
	}
	return l, files
}

func TestTheKubeletWritesOnlyBelowTheStateDirectory(t *testing.T) {
	l, files := rendered(t, Options{})
	assertPathsOutside(t, l, files[l.kubeletConfig()], func(text []byte, to any) error { return yaml.Unmarshal(text, to) }, l.Cgroup())
}

func TestContainerdWritesOnlyBelowTheStateDirectory(t *testing.T) {
	l, files := rendered(t, Options{})
	assertPathsOutside(t, l, files[l.containerdConfig()], toml.Unmarshal, "/opt/bin", "/usr/sbin/runc")
}

func TestCRIOWritesOnlyBelowTheStateDirectory(t *testing.T) {
	l, files := rendered(t, Options{ContainerRuntime: build.CRIO})
	assertPathsOutside(t, l, files[l.crioConfig()], toml.Unmarshal, "/opt/bin", "/opt/bin/pinns", "/pause", "/usr/bin/conmon")
}

// assertPathsOutside checks the paths in a document that are not below the state directory: programs
// are read, everything else is written.
func assertPathsOutside(t *testing.T, l Layout, text []byte, unmarshal func([]byte, any) error, want ...string) {
	t.Helper()
	var config any
	if err := unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	outside := slices.DeleteFunc(paths(config), func(path string) bool { return strings.HasPrefix(path, l.State+"/") })
	if diff := cmp.Diff(want, outside); diff != "" {
		t.Errorf("paths outside of the state directory (-want +got):\n%s", diff)
	}
}

// paths returns all strings of a decoded document that are absolute paths, sorted.
func paths(value any) []string {
	var found []string
	switch value := value.(type) {
	case string:
		if filepath.IsAbs(value) {
			found = append(found, value)
		}
	case []any:
		for _, v := range value {
			found = append(found, paths(v)...)
		}
	case map[string]any:
		for _, v := range value {
			found = append(found, paths(v)...)
		}
	}
	slices.Sort(found)
	return found
}
