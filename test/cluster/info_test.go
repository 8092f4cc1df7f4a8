// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The names in cluster.json are what other programs rely on.
func TestClusterJSONKeepsItsNames(t *testing.T) {
	l := testLayout(t, "e2e")
	data, err := json.Marshal(l.info(testNetwork(), Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"apiserver", "binDir", "cdiDir", "containerRuntime", "containerdSocket", "devicePluginsDir", "kubeconfig", "kubernetesVersion",
		"logsDir", "name", "netns", "nodeIP", "nodeName", "pluginsDir", "pluginsRegistryDir", "stateDir",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for _, field := range []string{"pluginsDir", "cdiDir", "kubeconfig"} {
		var path string
		if err := json.Unmarshal(fields[field], &path); err != nil || !filepath.IsAbs(path) {
			t.Errorf("%s is %s, want an absolute path", field, fields[field])
		}
	}
}
