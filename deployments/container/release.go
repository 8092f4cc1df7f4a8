// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/archive"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/provenance"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/sysroot"
)

// Files of a release that describe its other files.
const (
	provenanceFile = "provenance.intoto.json"
	sumsFile       = "SHA256SUMS"
)

// release writes the images of a release for all architectures and in all variants. It
// also writes the files that describe the images and the other files of the folder.
type release struct {
	output
	builder
	// images of the release.
	images []image
	// cross is the folder that `make cross-programs` has made.
	cross string
	// fips is the version of Go's cryptographic module in the variant fips.
	fips string
	// by is the address of the workflow or document that stands for who builds it.
	by string
}

func (r release) write(ctx context.Context) error {
	var list []written
	for _, v := range variants(r.fips) {
		for _, i := range r.images {
			w, err := r.image(ctx, i, v)
			if err != nil {
				return fmt.Errorf("image %s%s: %w", i.name, v.suffix, err)
			}
			list = append(list, w)
		}
	}
	chart, err := r.chart()
	if err != nil {
		return err
	}
	list = append(list, chart)
	if err := r.list(list); err != nil {
		return err
	}
	if err := r.provenance(ctx, list); err != nil {
		return err
	}
	return r.sums()
}

// image writes the archive with the index of an image, and the bills of materials.
func (r release) image(ctx context.Context, i image, v variant) (written, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	w := written{Name: i.name, Archive: i.name + v.suffix + ".tar"}
	var b builder
	for _, a := range sysroot.Architectures() {
		b = r.architecture(a, v)
		img, err := b.build(ctx, i)
		if err != nil {
			return written{}, err
		}
		bill, err := b.bill(ctx, i, img)
		if err != nil {
			return written{}, err
		}
		digest, err := img.Digest()
		if err != nil {
			return written{}, err
		}
		p := platform{Platform: "linux/" + a.Debian, Digest: digest.String(), SBOM: i.name + v.suffix + "-" + a.Debian + ".spdx.json"}
		if err := os.WriteFile(filepath.Join(r.dir, p.SBOM), bill, 0o644); err != nil {
			return written{}, err
		}
		w.Platforms = append(w.Platforms, p)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: a.Debian}},
		})
	}
	// Registries show the annotations of the index, not the labels of its images.
	index = mutate.Annotations(index, b.labels(i)).(v1.ImageIndex) //nolint:forcetypeassert // documented: the same type
	tag, err := r.tag(i.name, b.tagged())
	if err != nil {
		return written{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return written{}, err
	}
	w.Reference, w.Digest = tag.Name(), digest.String()
	if err := archive.WriteIndex(filepath.Join(r.dir, w.Archive), index, tag); err != nil {
		return written{}, err
	}
	_, err = fmt.Fprintf(r.say, "%s@%s\n", w.Reference, w.Digest)
	return w, err
}

// architecture returns the builder of one architecture and variant.
func (r release) architecture(a sysroot.Architecture, v variant) builder {
	b := r.builder
	b.variant = v
	b.bin = filepath.Join(r.cross, a.Debian, v.folder)
	b.system = debian.System{Root: filepath.Join(r.cross, a.Debian, sysroot.Root)}
	return b
}

// chart rewrites the chart package of the folder, and returns its entry.
func (r release) chart() (written, error) {
	found, err := filepath.Glob(filepath.Join(r.dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return written{}, fmt.Errorf("the folder has the chart packages %q, want one: %w", found, err)
	}
	if err := repack(found[0]); err != nil {
		return written{}, err
	}
	chart, err := chartArtifact(found[0])
	if err != nil {
		return written{}, err
	}
	digest, err := chart.Digest()
	if err != nil {
		return written{}, err
	}
	tag, err := r.tag(chartFolder+"/gpu-dra-driver", strings.TrimPrefix(r.version, "v"))
	if err != nil {
		return written{}, err
	}
	return written{Name: "gpu-dra-driver", Reference: tag.Name(), Digest: digest.String(), Archive: filepath.Base(found[0])}, nil
}

// provenance writes the statement about all files and images.
func (r release) provenance(ctx context.Context, list []written) error {
	b := provenance.Build{
		Type: source + "/blob/main/RELEASE.md#provenance", Builder: r.by,
		External: map[string]string{"VERSION": r.version, "IMAGE_PREFIX": r.prefix},
		Internal: map[string]string{"GOFIPS140": r.fips, "SOURCE_DATE_EPOCH": fmt.Sprint(r.created.Unix())},
		Dependencies: []provenance.Dependency{
			{URI: "git+" + source + "@refs/tags/" + r.version, Digest: provenance.Digest{"gitCommit": r.revision}},
		},
	}
	for _, w := range list {
		subject := func(digest string) {
			algorithm, hash, _ := strings.Cut(digest, ":")
			b.Subjects = append(b.Subjects, provenance.Subject{Name: w.Reference, Digest: provenance.Digest{algorithm: hash}})
		}
		subject(w.Digest)
		for _, p := range w.Platforms {
			subject(p.Digest)
		}
	}
	sums, err := r.digests(provenanceFile, sumsFile)
	if err != nil {
		return err
	}
	for _, s := range sums {
		b.Subjects = append(b.Subjects, provenance.Subject{Name: s.name, Digest: provenance.Digest{"sha256": s.hash}})
	}
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("go env GOVERSION: %w", err)
	}
	b.Dependencies = append(b.Dependencies, provenance.Dependency{URI: "pkg:golang/toolchain@" + strings.TrimPrefix(strings.TrimSpace(string(goVersion)), "go")})
	for _, a := range sysroot.Architectures() {
		packages, err := r.architecture(a, variant{}).system.Installed(ctx)
		if err != nil {
			return err
		}
		for _, p := range packages {
			b.Dependencies = append(b.Dependencies, provenance.Dependency{URI: p.URL()})
		}
		compiler, err := exec.CommandContext(ctx, a.Triplet+"-gcc", "--version").Output()
		if err != nil {
			return fmt.Errorf("version of the compiler for %s: %w", a.Debian, err)
		}
		b.Internal["compiler."+a.Debian], _, _ = strings.Cut(string(compiler), "\n")
	}
	text, err := provenance.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, provenanceFile), text, 0o644)
}

// sum is the checksum of a file.
type sum struct{ name, hash string }

// digests returns the checksums of the files in the folder, without some.
func (r release) digests(without ...string) ([]sum, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var out []sum
	for _, entry := range entries {
		if slices.Contains(without, entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(content)
		out = append(out, sum{entry.Name(), hex.EncodeToString(hash[:])})
	}
	return out, nil
}

// sums writes the checksums in the form of sha256sum.
func (r release) sums() error {
	sums, err := r.digests(sumsFile)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, s := range sums {
		fmt.Fprintf(&text, "%s  %s\n", s.hash, s.name)
	}
	return os.WriteFile(filepath.Join(r.dir, sumsFile), []byte(text.String()), 0o644)
}
