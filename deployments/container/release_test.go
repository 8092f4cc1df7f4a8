// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/provenance"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/sysroot"
)

// fipsModule is the version of the cryptographic module in these tests.
const fipsModule = "v1.0.0"

// crossed is a folder as `make cross-programs` makes it, for the image that needs no cross
// compiler. It is made once.
var crossed = sync.OnceValues(func() (string, error) {
	f, err := shared()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(f.dir, "cross")
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return "", err
	}
	for _, a := range sysroot.Architectures() {
		// It is only asked for its version.
		compiler := filepath.Join(dir, "bin", a.Triplet+"-gcc")
		if err := os.WriteFile(compiler, []byte("#!/bin/sh\necho gcc 12 for "+a.Debian+"\n"), 0o755); err != nil {
			return "", err
		}
		for _, v := range variants(fipsModule) {
			cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, a.Debian, v.folder, "probe"), "./testdata/static")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+a.Debian, "GOFIPS140="+v.fips)
			if text, err := cmd.CombinedOutput(); err != nil {
				return "", errors.New(string(text))
			}
		}
		root := filepath.Join(dir, a.Debian, sysroot.Root)
		for file, text := range map[string]string{
			"var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: " + a.Debian + "\nSource: glibc\nMaintainer: A\nDescription: short\n",
			"usr/lib/os-release":  "ID=debian\nVERSION_ID=\"12\"\n",
		} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755), os.WriteFile(filepath.Join(root, file), []byte(text), 0o644)); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
})

// makeRelease makes a release of one image into a folder that has a chart.
func makeRelease(t *testing.T, chartTime time.Time) release {
	t.Helper()
	cross, err := crossed()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(cross, "bin")+":"+os.Getenv("PATH"))
	f := get(t)
	r := release{
		output: output{dir: t.TempDir(), prefix: "registry.example.com/team", say: t.Output()}, builder: f.builder,
		images: []image{byName(t, "gpu-probe")}, cross: cross, fips: fipsModule, by: "https://example.com/workflow",
	}
	r.version, r.layers = "v1.2.3", layer.Cache{}
	var chart bytes.Buffer
	zip := gzip.NewWriter(&chart)
	w := tar.NewWriter(zip)
	for _, file := range []struct{ name, text string }{
		{"gpu-dra-driver/Chart.yaml", "apiVersion: v2\nname: gpu-dra-driver\nversion: 1.2.3\ndescription: A driver\n"},
		{"gpu-dra-driver/values.yaml", "a: 1\n"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text)), ModTime: chartTime}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, file.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close(), os.WriteFile(filepath.Join(r.dir, "gpu-dra-driver-1.2.3.tgz"), chart.Bytes(), 0o644),
		os.WriteFile(filepath.Join(r.dir, "NOTES.md"), []byte("notes"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// serve runs a registry that keeps everything in memory, and returns a prefix for names.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/team"
}

func entriesOf(t *testing.T, r release) []written {
	t.Helper()
	var list []written
	if err := json.Unmarshal([]byte(contents(t, r.dir)[imagesFile]), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// referrer returns the only artifact of a type that refers to a digest.
func referrer(t *testing.T, digest name.Digest, artifactType string) string {
	t.Helper()
	index, err := remote.Referrers(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range manifest.Manifests {
		img, err := remote.Image(digest.Digest(d.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		// The registry of this library lists another type.
		var described struct{ ArtifactType string }
		raw, err := img.RawManifest()
		if err := errors.Join(err, json.Unmarshal(raw, &described)); err != nil {
			t.Fatal(err)
		}
		if described.ArtifactType != artifactType {
			continue
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("layers %v, error %v", layers, err)
		}
		content, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, string(text))
	}
	if len(found) != 1 {
		t.Fatalf("%d artifacts of type %s refer to %s:\n%+v", len(found), artifactType, digest, manifest.Manifests)
	}
	return found[0]
}

func TestARegistryHasTheReleaseAsItsFilesDescribeIt(t *testing.T) {
	r := makeRelease(t, time.Unix(1, 0))
	prefix := serve(t)
	p := newPush(t.Context(), r.dir, prefix, t.Output())
	// Pushing again is how an interrupted job is repeated.
	if err := errors.Join(p.run(), p.run()); err != nil {
		t.Fatal(err)
	}
	files, list := contents(t, r.dir), entriesOf(t, r)
	var references []string
	for _, w := range list {
		references = append(references, w.Reference)
		tag, err := name.NewTag(strings.Replace(w.Reference, "registry.example.com/team", prefix, 1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Get(tag)
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest.String() != w.Digest {
			t.Errorf("%s has the digest %s, and images.json %s", tag, got.Digest, w.Digest)
		}
		if diff := cmp.Diff(files[provenanceFile], referrer(t, tag.Digest(w.Digest), provenance.MediaType)); diff != "" {
			t.Errorf("provenance of %s (-file +registry):\n%s", tag, diff)
		}
		if len(w.Platforms) == 0 {
			continue
		}
		index, err := got.ImageIndex()
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []platform
		for _, d := range manifest.Manifests {
			platforms = append(platforms, platform{Platform: d.Platform.String(), Digest: d.Digest.String()})
		}
		want := slices.Clone(w.Platforms)
		for n := range want {
			if diff := cmp.Diff(files[want[n].SBOM], referrer(t, tag.Digest(want[n].Digest), sbomType)); diff != "" {
				t.Errorf("bill of materials of %s (-file +registry):\n%s", want[n].Platform, diff)
			}
			want[n].SBOM = ""
		}
		if diff := cmp.Diff(want, platforms); diff != "" {
			t.Errorf("platforms of %s (-images.json +registry):\n%s", tag, diff)
		}
		if got := []string{platforms[0].Platform, platforms[1].Platform}; !slices.Equal(got, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s is for %q", tag, got)
		}
	}
	want := []string{"registry.example.com/team/gpu-probe:v1.2.3", "registry.example.com/team/gpu-probe:v1.2.3-fips", "registry.example.com/team/charts/gpu-dra-driver:1.2.3"}
	if diff := cmp.Diff(want, references); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

// Helm refuses other types, and shows the metadata without the package.
func TestTheChartIsInTheRegistryAsHelmExpectsIt(t *testing.T) {
	r := makeRelease(t, time.Unix(1, 0))
	prefix := serve(t)
	if err := newPush(t.Context(), r.dir, prefix, t.Output()).run(); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(prefix + "/charts/gpu-dra-driver:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	chart, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := chart.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Config.MediaType != chartConfig || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartContent {
		t.Errorf("manifest %+v", manifest)
	}
	config, err := chart.RawConfigFile()
	var metadata struct{ Name, Version string }
	if err := errors.Join(err, json.Unmarshal(config, &metadata)); err != nil || metadata.Name != "gpu-dra-driver" || metadata.Version != "1.2.3" {
		t.Errorf("configuration %s, error %v", config, err)
	}
}

func TestAFileThatIsNotTheReleasesIsNotPushed(t *testing.T) {
	r := makeRelease(t, time.Unix(1, 0))
	// An archive of another build.
	other := r
	other.dir, other.revision = t.TempDir(), "fedcba"
	if err := os.CopyFS(other.dir, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	if err := other.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(other.dir, "gpu-probe.tar"), filepath.Join(r.dir, "gpu-probe.tar")); err != nil {
		t.Fatal(err)
	}
	if err := newPush(t.Context(), r.dir, serve(t), t.Output()).run(); err == nil || !strings.Contains(err.Error(), "images.json has") {
		t.Errorf("error %v", err)
	}
}

func TestTwoBuildsOfAReleaseHaveTheSameFiles(t *testing.T) {
	one, two := makeRelease(t, time.Unix(1, 0)), makeRelease(t, time.Unix(1e9, 0))
	first, second := contents(t, one.dir), contents(t, two.dir)
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s differs", name)
		}
	}
	sums := first[sumsFile]
	if lines := strings.Count(sums, "\n"); lines != len(first)-1 || !strings.Contains(sums, "  "+provenanceFile+"\n") {
		t.Errorf("%d files, and the checksums:\n%s", len(first), sums)
	}
}

func TestTheProvenanceNamesEveryFileImageAndPackage(t *testing.T) {
	r := makeRelease(t, time.Unix(1, 0))
	files := contents(t, r.dir)
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []provenance.Subject
		Predicate     struct {
			BuildDefinition struct{ ResolvedDependencies []provenance.Dependency }
			RunDetails      struct{ Builder struct{ ID string } }
		}
	}
	if err := json.Unmarshal([]byte(files[provenanceFile]), &statement); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" || statement.Predicate.RunDetails.Builder.ID != r.by {
		t.Errorf("statement:\n%s", files[provenanceFile])
	}
	digests := map[string]bool{}
	for _, s := range statement.Subject {
		digests["sha256:"+s.Digest["sha256"]] = true
		digests[s.Name] = true
	}
	for name := range files {
		if !digests[name] && name != provenanceFile && name != sumsFile {
			t.Errorf("the statement lacks the file %s", name)
		}
	}
	for _, w := range entriesOf(t, r) {
		for _, digest := range append([]string{w.Digest}, func() (of []string) {
			for _, p := range w.Platforms {
				of = append(of, p.Digest)
			}
			return of
		}()...) {
			if !digests[digest] {
				t.Errorf("the statement lacks %s of %s", digest, w.Reference)
			}
		}
	}
	for _, want := range []string{"git+" + source + "@refs/tags/v1.2.3", "pkg:deb/debian/libc6@2.36-9?arch=arm64&distro=debian-12"} {
		if !slices.ContainsFunc(statement.Predicate.BuildDefinition.ResolvedDependencies, func(d provenance.Dependency) bool { return d.URI == want }) {
			t.Errorf("the statement lacks the dependency %s:\n%s", want, files[provenanceFile])
		}
	}
}

func TestAProgramWithoutTheCryptographicModuleIsNotShippedAsFIPS(t *testing.T) {
	cross, err := crossed()
	if err != nil {
		t.Fatal(err)
	}
	fips := variants(fipsModule)[1]
	if err := fips.check(filepath.Join(cross, "arm64", "fips", "probe")); err != nil {
		t.Error(err)
	}
	for _, other := range []struct {
		variant variant
		folder  string
	}{{fips, "none"}, {variants("v1.0")[1], "fips"}} {
		if err := other.variant.check(filepath.Join(cross, "arm64", other.folder, "probe")); err == nil || !strings.Contains(err.Error(), "GOFIPS140="+other.variant.fips) {
			t.Errorf("a program of %s as %s: error %v", other.folder, other.variant.fips, err)
		}
	}
}

// A scanner that reads the document must see every file of the image, and its package.
func TestTheBillOfMaterialsHasEveryFileOfTheImage(t *testing.T) {
	f := get(t)
	for _, i := range images() {
		img, err := f.build(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		text, err := f.bill(t.Context(), i, img)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Packages []struct{ Name, LicenseConcluded string }
			Files    []struct{ FileName, LicenseConcluded string }
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, file := range d.Files {
			listed[strings.TrimPrefix(file.FileName, "./")] = true
			if file.LicenseConcluded == "" || file.LicenseConcluded == "NOASSERTION" {
				t.Errorf("%s: %s has no licence", i.name, file.FileName)
			}
		}
		for name, header := range entries(t, img) {
			if header.Typeflag == tar.TypeReg && !listed[name] {
				t.Errorf("%s: %s is not in the bill of materials", i.name, name)
			}
		}
		want := []string{i.name, ownModule, "stdlib"}
		if i.name == "gpu-kubelet-plugin" {
			want = append(want, "libc6", "libgcc-s1", "base-files")
		}
		for _, name := range want {
			if !slices.ContainsFunc(d.Packages, func(p struct{ Name, LicenseConcluded string }) bool {
				return p.Name == name && p.LicenseConcluded != ""
			}) {
				t.Errorf("%s: package %s is not in the bill of materials", i.name, name)
			}
		}
	}
}
