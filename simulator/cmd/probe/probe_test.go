// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func container(t *testing.T, files map[string]string) root {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root(dir)
}

func TestMetadataOfAllVersionsIsReportedOnce(t *testing.T) {
	document := func(version string) string {
		return `{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/` + version + `","metadata":{"name":"claim-x"},
			"requests":[{"name":"gpu","devices":[{"name":"gpu-1b-00","attributes":{"uuid":{"string":"GPU-1"},"numaNode":{"int":0}}}]}]}`
	}
	const file = metadataDir + "/resourceclaimtemplates/gpu/gpu/gpu.nvidia.com-metadata.json"
	r := container(t, map[string]string{file: document("v1beta1") + "\n" + document("v1alpha1")})
	got, err := lookAtMetadata(r)
	must(t, err)
	want := []metadata{{
		Claim: "claim-x", Request: "gpu", Device: "gpu-1b-00",
		Attributes: json.RawMessage(`{"uuid":{"string":"GPU-1"},"numaNode":{"int":0}}`),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestABrokenMetadataFileIsNamed(t *testing.T) {
	r := container(t, map[string]string{metadataDir + "/resourceclaims/a/b/c-metadata.json": `{"kind":"Other"}`})
	if _, err := lookAtMetadata(r); err == nil {
		t.Error("it was accepted")
	}
}

func TestAContainerWithoutAGPUHasEmptyLists(t *testing.T) {
	got, err := look(container(t, nil), nil)
	must(t, err)
	want := report{Hostname: got.Hostname, Devices: []device{}, Env: map[string]string{}, Libraries: []library{}, Metadata: []metadata{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
