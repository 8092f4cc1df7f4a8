// SPDX-License-Identifier: Apache-2.0

package main

import (
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root(dir)
}

func TestOnlyNodesOfTheDriverAreReported(t *testing.T) {
	r := container(t, map[string]string{"dev/nvidia0": "", "dev/nvidia-caps/nvidia-cap1": "", "dev/null": "", "dev/pts/nvidia9": ""})
	got, err := readDevices(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []device{
		{Path: "/dev/nvidia-caps/nvidia-cap1", Type: "other", Mode: "0644", Open: "ok"},
		{Path: "/dev/nvidia0", Type: "other", Mode: "0644", Open: "ok"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDeviceNumbersMatchLs(t *testing.T) {
	got, err := lookAtDevice("/", "/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(device{Path: "/dev/null", Type: "char", Major: 1, Minor: 3, Mode: "0666", Open: "ok"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if major(0x12345678_9abcdef0) != 0x12345cde || minor(0x12345678_9abcdef0) != 0x6789abf0 {
		t.Errorf("got %#x, %#x", major(0x12345678_9abcdef0), minor(0x12345678_9abcdef0))
	}
}

func TestMountsOfTheDriverAreReported(t *testing.T) {
	got, err := parseMounts(`1 2 0:3 / /proc rw,nosuid shared:1 - proc proc rw
3 2 8:1 /driver/libcuda.so.570 /usr/lib/libcuda.so.570 ro,nosuid master:1 - ext4 /dev/vda rw
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{{Path: "/usr/lib/libcuda.so.570", Source: "/driver/libcuda.so.570", Type: "ext4", ReadOnly: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseMounts("nonsense\n"); err == nil {
		t.Error("nonsense was accepted")
	}
}

func TestLibrariesAndTheirCacheAreReported(t *testing.T) {
	r := container(t, map[string]string{
		"usr/lib64/libcuda.so.570.86":   "",
		"usr/lib/libc.so.6":             "",
		"etc/ld.so.cache":               "glibc-ld.so.cache1.1\x00libcuda.so.1\x00/usr/lib64/libcuda.so.1\x00libc.so.6\x00",
		"usr/lib64/libnvidia-ml.so.570": "",
	})
	if err := os.Symlink("libcuda.so.570.86", r.path("usr/lib64/libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	libraries, err := lookAtLibraries(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []library{
		{Path: "/usr/lib64/libcuda.so.1", Target: "libcuda.so.570.86"},
		{Path: "/usr/lib64/libcuda.so.570.86"},
		{Path: "/usr/lib64/libnvidia-ml.so.570"},
	}
	if diff := cmp.Diff(want, libraries); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}
	cache, err := lookAtLDCache(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"libcuda.so.1"}, cache); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
}

func TestMetadataOfAllVersionsIsReportedOnce(t *testing.T) {
	document := func(version string) string {
		return `{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/` + version + `","metadata":{"name":"claim-x"},"podClaimName":"gpu",
			"requests":[{"name":"gpu","devices":[{"driver":"gpu.nvidia.com","pool":"node","name":"gpu-1b-00","attributes":{"uuid":{"string":"GPU-1"},"numaNode":{"int":0}}}]}]}`
	}
	file := "/" + metadataDir + "/resourceclaimtemplates/gpu/gpu/gpu.nvidia.com-metadata.json"
	r := container(t, map[string]string{file: document("v1beta1") + "\n" + document("v1alpha1")})
	got, err := lookAtMetadata(r)
	if err != nil {
		t.Fatal(err)
	}
	uuid, numaNode := "GPU-1", int64(0)
	want := []metadata{{
		File: file, Claim: "claim-x", PodClaim: "gpu", Request: "gpu", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-1b-00",
		Attributes: map[string]attribute{"uuid": {String: &uuid}, "numaNode": {Int: &numaNode}},
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
	r := container(t, map[string]string{"proc/self/mountinfo": ""})
	got, err := look(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := report{Hostname: got.Hostname, Devices: []device{}, Env: map[string]string{}, Mounts: []mount{}, Libraries: []library{}, LDCache: []string{}, Metadata: []metadata{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
