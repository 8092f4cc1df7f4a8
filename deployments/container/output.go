// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/archive"
)

// output describes where to write the images.
type output struct {
	dir, prefix string
	// say receives a line with the reference and digest of each image.
	say io.Writer
}

// imagesFile lists the images of a folder.
const imagesFile = "images.json"

// written is one entry of images.json.
type written struct {
	Name      string `json:"name"`
	Reference string `json:"reference"`
	// Digest is the index's, if the image has several platforms.
	Digest  string `json:"digest"`
	Archive string `json:"archive"`
	// Platforms of a release. It is empty for the images of one machine and for the chart.
	Platforms []platform `json:"platforms,omitempty"`
}

// platform is the image of an index for one platform.
type platform struct {
	Platform string `json:"platform"`
	Digest   string `json:"digest"`
	// SBOM is the file with the bill of materials.
	SBOM string `json:"sbom"`
}

// write builds all images.
func (o output) write(ctx context.Context, b builder) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	var list []written
	for _, i := range images() {
		img, err := b.build(ctx, i)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		tag, err := o.tag(i.name, b.tagged())
		if err != nil {
			return err
		}
		digest, err := img.Digest()
		if err != nil {
			return err
		}
		w := written{Name: i.name, Reference: tag.Name(), Digest: digest.String(), Archive: i.name + ".tar"}
		tags := []name.Tag{tag}
		if i.tag != "" {
			tags = append(tags, tag.Context().Tag(i.tag))
		}
		if err := archive.Write(filepath.Join(o.dir, w.Archive), img.Image, tags...); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.say, "%s@%s\n", w.Reference, w.Digest); err != nil {
			return err
		}
		list = append(list, w)
	}
	return o.list(list)
}

// tag returns the reference of an image. References cannot have the + of a version.
func (o output) tag(image, version string) (name.Tag, error) {
	tag, err := name.NewTag(o.prefix+"/"+image+":"+strings.ReplaceAll(version, "+", "_"), name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name of image %s with prefix %q: %w", image, o.prefix, err)
	}
	return tag, nil
}

// list writes images.json.
func (o output) list(list []written) error {
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.dir, imagesFile), append(text, '\n'), 0o644)
}
