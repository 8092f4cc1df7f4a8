// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

func testImage(t *testing.T) v1.Image {
	t.Helper()
	l, err := layer.Cache{}.Layer(layer.Files{"etc/motd": {Mode: 0o644, Content: []byte("hello\n")}})
	if err != nil {
		t.Fatal(err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, l); err != nil {
		t.Fatal(err)
	}
	return img
}

func testTag(t *testing.T) name.Tag {
	t.Helper()
	tag, err := name.NewTag("localhost/gpu-dra-driver/test:v1", name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// unpack extracts an archive of regular files.
func unpack(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnArchiveIsAnOCILayoutWithItsNames(t *testing.T) {
	img := testImage(t)
	file := filepath.Join(t.TempDir(), "test.tar")
	if err := Write(file, img, testTag(t), testTag(t).Context().Tag("demo")); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(unpack(t, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{
		{
			"org.opencontainers.image.ref.name": "v1",
			"io.containerd.image.name":          "localhost/gpu-dra-driver/test:v1",
		},
		{
			"org.opencontainers.image.ref.name": "demo",
			"io.containerd.image.name":          "localhost/gpu-dra-driver/test:demo",
		},
	}
	var got []map[string]string
	for _, m := range manifest.Manifests {
		got = append(got, m.Annotations)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestAnArchiveIsWhatDockerSaves(t *testing.T) {
	img, tag := testImage(t), testTag(t)
	file := filepath.Join(t.TempDir(), "test.tar")
	if err := Write(file, img, tag, tag.Context().Tag("demo")); err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(read); err != nil {
		t.Error(err)
	}
	want, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read.ConfigName(); err != nil || got != want {
		t.Errorf("image %v, error %v, want %v", got, err, want)
	}
	var manifest []struct{ RepoTags []string }
	text, err := os.ReadFile(filepath.Join(unpack(t, file), "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"localhost/gpu-dra-driver/test:v1", "localhost/gpu-dra-driver/test:demo"}, manifest[0].RepoTags); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

func TestAFailedWriteKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "test.tar")
	if err := os.WriteFile(file, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("disk full")
	if err := replace(file, func(io.Writer) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "older" || len(entries) != 1 {
		t.Errorf("file %q, error %v, %d files", got, err, len(entries))
	}
}
