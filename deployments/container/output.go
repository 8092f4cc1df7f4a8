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

// written is one entry of images.json.
type written struct {
	Name      string `json:"name"`
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
	Archive   string `json:"archive"`
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
		tag, err := name.NewTag(o.prefix+"/"+i.name+":"+strings.ReplaceAll(b.version, "+", "_"), name.StrictValidation)
		if err != nil {
			return fmt.Errorf("name of image %s with prefix %q: %w", i.name, o.prefix, err)
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
		if err := archive.Write(filepath.Join(o.dir, w.Archive), img, tags...); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.say, "%s@%s\n", w.Reference, w.Digest); err != nil {
			return err
		}
		list = append(list, w)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.dir, "images.json"), append(text, '\n'), 0o644)
}
