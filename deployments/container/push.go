// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/archive"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/artifact"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/provenance"
)

// sbomType is the type of a bill of materials in a registry.
const sbomType = "application/spdx+json"

// push puts a release into a registry: images, chart, and what refers to them.
type push struct {
	// dir has the files of the release.
	dir string
	// prefix replaces the one of the references, if it is not empty.
	prefix string
	// say receives a line with the reference and digest of each image and the chart.
	say     io.Writer
	options []remote.Option
}

func newPush(ctx context.Context, dir, prefix string, say io.Writer) push {
	return push{dir: dir, prefix: strings.TrimSuffix(prefix, "/"), say: say, options: []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	}}
}

// run pushes everything. It may be repeated: equal content is not pushed twice.
func (p push) run() error {
	list, err := p.list()
	if err != nil {
		return err
	}
	statement, err := os.ReadFile(filepath.Join(p.dir, provenanceFile))
	if err != nil {
		return err
	}
	for _, w := range list {
		tag, err := p.tag(w)
		if err != nil {
			return err
		}
		if err := p.entry(w, tag, statement); err != nil {
			return fmt.Errorf("push %s: %w", tag, err)
		}
		if _, err := fmt.Fprintf(p.say, "%s@%s\n", tag, w.Digest); err != nil {
			return err
		}
	}
	return nil
}

// references prints what run pushes, without a registry.
func (p push) references() error {
	list, err := p.list()
	if err != nil {
		return err
	}
	for _, w := range list {
		tag, err := p.tag(w)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.say, "%s@%s\n", tag, w.Digest); err != nil {
			return err
		}
	}
	return nil
}

// list reads images.json.
func (p push) list() ([]written, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, imagesFile))
	if err != nil {
		return nil, fmt.Errorf("%w; make release builds it", err)
	}
	var list []written
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", imagesFile, err)
	}
	return list, nil
}

// tag returns the reference of an entry, below the prefix.
func (p push) tag(w written) (name.Tag, error) {
	reference := w.Reference
	if p.prefix != "" {
		path := w.Name
		if len(w.Platforms) == 0 {
			path = chartFolder + "/" + w.Name
		}
		reference = p.prefix + "/" + path + reference[strings.LastIndex(reference, ":"):]
	}
	return name.NewTag(reference, name.StrictValidation)
}

// entry pushes an image or the chart under the tag, with its bills of materials and the statement.
func (p push) entry(w written, tag name.Tag, statement []byte) error {
	file := filepath.Join(p.dir, w.Archive)
	if len(w.Platforms) == 0 {
		chart, err := chartArtifact(file)
		if err != nil {
			return err
		}
		if err := check(chart, w.Digest); err != nil {
			return err
		}
		if err := remote.Write(tag, chart, p.options...); err != nil {
			return err
		}
		return p.refer(tag, chart, provenance.MediaType, statement)
	}
	return archive.Index(file, func(index v1.ImageIndex) error {
		if err := check(index, w.Digest); err != nil {
			return err
		}
		if err := remote.WriteIndex(tag, index, p.options...); err != nil {
			return err
		}
		if err := p.refer(tag, index, provenance.MediaType, statement); err != nil {
			return err
		}
		for _, on := range w.Platforms {
			if err := p.bill(tag, index, on); err != nil {
				return fmt.Errorf("bill of materials for %s: %w", on.Platform, err)
			}
		}
		return nil
	})
}

// bill pushes the bill of materials of one platform.
func (p push) bill(tag name.Tag, index v1.ImageIndex, on platform) error {
	hash, err := v1.NewHash(on.Digest)
	if err != nil {
		return err
	}
	img, err := index.Image(hash)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(p.dir, on.SBOM))
	if err != nil {
		return err
	}
	return p.refer(tag, img, sbomType, text)
}

// refer pushes content that refers to the subject.
func (p push) refer(tag name.Tag, subject partial.Describable, contentType string, content []byte) error {
	described, err := partial.Descriptor(subject)
	if err != nil {
		return err
	}
	img, err := artifact.Artifact{
		Type: contentType, Config: artifact.Empty(), File: artifact.Blob{Type: types.MediaType(contentType), Content: content},
		// The platform and annotations of an index do not belong here.
		Subject: &v1.Descriptor{MediaType: described.MediaType, Digest: described.Digest, Size: described.Size},
	}.Image()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	return remote.Write(tag.Digest(digest.String()), img, p.options...)
}

// check returns an error if the content is not what images.json names.
func check(content interface{ Digest() (v1.Hash, error) }, want string) error {
	got, err := content.Digest()
	if err != nil {
		return err
	}
	if got.String() != want {
		return errors.New("its digest is " + got.String() + ", and images.json has " + want)
	}
	return nil
}
