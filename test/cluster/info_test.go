// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
)

var testTime = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// The names in cluster.json are what other programs rely on.
func TestClusterJSONKeepsItsNames(t *testing.T) {
	l := testLayout(t, "e2e")
	data, err := json.Marshal(l.info(testNetwork(), Options{FeatureGates: map[string]bool{"A": true}}))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"apiserver", "binDir", "cdiDir", "containerRuntime", "containerdSocket", "devicePluginsDir", "featureGates", "kubeconfig", "kubeletRoot", "kubernetesVersion",
		"logsDir", "name", "netns", "nodeIP", "nodeName", "ociRuntime", "pluginsDir", "pluginsRegistryDir", "probeImage", "stateDir",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for _, field := range []string{"kubeletRoot", "pluginsDir", "cdiDir", "kubeconfig"} {
		var path string
		if err := json.Unmarshal(fields[field], &path); err != nil || !filepath.IsAbs(path) {
			t.Errorf("%s is %s, want an absolute path", field, fields[field])
		}
	}
}

// A program that needs containerd sees that it is not there.
func TestClusterJSONHasNoSocketOfContainerdWithCRIO(t *testing.T) {
	info := testLayout(t, "e2e").info(testNetwork(), Options{ContainerRuntime: build.CRIO})
	if info.ContainerRuntime != "cri-o" || info.ContainerdSocket != "" {
		t.Errorf("got %+v", info)
	}
}

func TestClusterJSONIsReadBackAsWritten(t *testing.T) {
	l := Layout{Name: "e2e", State: t.TempDir(), Bin: "/opt/bin"}
	if _, err := ReadInfo(l); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before up: got %v, want %v", err, fs.ErrNotExist)
	}
	want := l.info(testNetwork(), Options{FeatureGates: map[string]bool{"A": true}})
	if err := want.write(l.InfoFile()); err != nil {
		t.Fatal(err)
	}
	got, err := ReadInfo(l)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(l.InfoFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadInfo(l); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("torn file: got %v", err)
	}
}

func TestTheStatusOfAClusterThatIsNotUp(t *testing.T) {
	status := GetStatus(t.Context(), Layout{Name: "e2e", State: t.TempDir(), Bin: "/opt/bin"})
	if status.Healthy || status.Problem == "" || status.Info != nil || len(status.Components) != len(Components()) {
		t.Errorf("got %+v", status)
	}
}
