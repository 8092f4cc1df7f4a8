// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletinternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	kubeletvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
)

func testNetwork() network {
	return network{Host: netip.MustParseAddr("198.18.1.1"), Node: netip.MustParseAddr("198.18.1.2"), Server: netip.MustParseAddr("198.18.1.2")}
}

func rendered(t *testing.T, gates map[string]bool) (Layout, map[string][]byte) {
	t.Helper()
	return renderedWith(t, Options{Release: build.Release{FeatureGates: gates}})
}

func renderedWith(t *testing.T, o Options) (Layout, map[string][]byte) {
	t.Helper()
	l := testLayout(t, "e2e")
	files, err := renderConfig(l, testNetwork(), o, programs{runc: "/usr/sbin/runc", conmon: "/usr/bin/conmon"})
	if err != nil {
		t.Fatal(err)
	}
	return l, files
}

func TestTheKubeletAcceptsItsConfiguration(t *testing.T) {
	l, files := rendered(t, map[string]bool{"DRAListTypeAttributes": true})
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletinternal.KubeletConfiguration
	if _, _, err := codecs.UniversalDecoder().Decode(files[l.kubeletConfig()], nil, &config); err != nil {
		t.Fatal(err)
	}
	if err := kubeletvalidation.ValidateKubeletConfiguration(&config, utilfeature.DefaultFeatureGate); err != nil {
		t.Error(err)
	}
	if config.CgroupRoot != l.Cgroup() {
		t.Errorf("cgroup root %q, want the cluster's own %q", config.CgroupRoot, l.Cgroup())
	}
	if !strings.HasPrefix(config.PodLogsDir, l.State+"/") {
		t.Errorf("pod logs go to %q, outside of the state directory", config.PodLogsDir)
	}
	if !config.FeatureGates["DRAListTypeAttributes"] {
		t.Error("the feature gate did not arrive")
	}
}

func TestContainerdWritesOnlyBelowTheStateDirectory(t *testing.T) {
	l, files := rendered(t, nil)
	assertPathsOutside(t, l, files[l.containerdConfig()], "/opt/bin", "/usr/sbin/runc")
}

func TestCRIOWritesOnlyBelowTheStateDirectory(t *testing.T) {
	l, files := renderedWith(t, Options{ContainerRuntime: build.CRIO})
	assertPathsOutside(t, l, files[l.crioConfig()], "/opt/bin", "/opt/bin/pinns", "/pause", "/usr/bin/conmon")
}

// assertPathsOutside checks the paths in TOML that are not below the state directory: programs
// are read, everything else is written.
func assertPathsOutside(t *testing.T, l Layout, text []byte, want ...string) {
	t.Helper()
	var config any
	if err := toml.Unmarshal(text, &config); err != nil {
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

func TestEachFileInTheArgumentsOfADaemonIsWritten(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	first := Layout{Name: "a", State: filepath.Join(t.TempDir(), "a"), Bin: "/opt/bin"}
	for _, l := range []Layout{first, first.node(2)} {
		assertFilesWritten(t, l, now)
	}
}

func assertFilesWritten(t *testing.T, l Layout, now time.Time) {
	t.Helper()
	n := testNetwork()
	if !l.isFirst() {
		n = furtherNetwork(l, n.Server)
	}
	files, err := renderConfig(l, n, Options{}, programs{runc: "/usr/sbin/runc"})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := newCredentials(l, n, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFiles(credentials); err != nil {
		t.Fatal(err)
	}
	for _, component := range l.components() {
		for _, arg := range arguments(component, l, n, nil, nil) {
			flag, value, _ := strings.Cut(arg, "=")
			if flag == "--runtime-config" { // versions of the API
				continue
			}
			if !strings.Contains(flag, "file") && !strings.Contains(flag, "config") && !strings.Contains(flag, "certificate") && !strings.Contains(flag, "key") {
				continue
			}
			if files[value] == nil && credentials[value] == nil {
				t.Errorf("%s of %s: %s: the file is not written", component, l.Name, arg)
			}
		}
	}
}
