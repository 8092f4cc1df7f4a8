// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/closure"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/notices"
)

// source is where the code is.
const source = "https://github.com/gpu-dra/gpu-dra-driver"

// builder makes images. The same programs, Debian packages and fields make the
// same image, bit by bit.
type builder struct {
	// bin is the folder with our programs.
	bin string
	// system has the C library of the programs. The zero value is this machine.
	system debian.System
	// licence is the file with our own.
	licence string
	// sources are where the licences of modules are.
	sources notices.Roots
	layers  layer.Cache

	version, revision string
	// variant of the release. The zero value is the usual one.
	variant variant
	created time.Time
}

// located is a program and where on this machine it is.
type located struct {
	program
	file string
	elf  closure.Program
}

// part is one layer.
type part struct {
	what  string
	files layer.Files
}

// built is an image with the inputs of its build.
type built struct {
	v1.Image
	parts    []part
	programs []located
	// libraries are the files of the system, by their path in the image.
	libraries map[string]string
}

// build makes an image.
func (b builder) build(ctx context.Context, i image) (built, error) {
	programs, err := b.locate(i)
	if err != nil {
		return built{}, err
	}
	libraries, from, err := b.cLibrary(ctx, programs)
	if err != nil {
		return built{}, err
	}
	licences, err := b.terms(ctx, programs, len(libraries) > 0)
	if err != nil {
		return built{}, err
	}
	contents := []part{{"base", base()}}
	if len(libraries) > 0 {
		contents = append(contents, part{"C library", libraries})
	}
	for _, p := range programs {
		files, err := p.files()
		if err != nil {
			return built{}, err
		}
		contents = append(contents, part{p.name, files})
	}
	contents = append(contents, part{"licences", licences})

	var addenda []mutate.Addendum
	for _, c := range contents {
		made, err := b.layers.Layer(c.files)
		if err != nil {
			return built{}, fmt.Errorf("%s: %w", c.what, err)
		}
		addenda = append(addenda, mutate.Addendum{
			Layer: made, MediaType: types.OCILayer,
			// No time: the layer is older than the image.
			History: v1.History{CreatedBy: "make images", Comment: c.what},
		})
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, addenda...); err != nil {
		return built{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return built{}, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", programs[0].elf.GOARCH
	config.Created = v1.Time{Time: b.created.UTC()}
	config.Config = b.config(i)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return built{}, err
	}
	return built{Image: img, parts: contents, programs: programs, libraries: from}, nil
}

// config is how a container of the image is run.
func (b builder) config(i image) v1.Config {
	return v1.Config{
		Entrypoint: []string{"/usr/bin/" + i.entrypoint},
		Env:        []string{"PATH=/usr/bin"},
		User:       i.user,
		WorkingDir: "/",
		Labels:     b.labels(i),
	}
}

// labels are OCI's standard ones.
func (b builder) labels(i image) map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		"title": i.title, "description": i.description, "version": b.tagged(), "revision": b.revision,
		"source": source, "licenses": i.licenses, "created": b.created.UTC().Format(time.RFC3339),
	} {
		labels["org.opencontainers.image."+name] = value
	}
	return labels
}

// tagged returns the version with the suffix of the variant.
func (b builder) tagged() string { return b.version + b.variant.suffix }

// locate returns the programs of an image. It returns an error if a program cannot
// run in the container or on the host that starts it.
func (b builder) locate(i image) ([]located, error) {
	var out []located
	for _, p := range i.programs {
		file := filepath.Join(b.bin, p.folder, p.name)
		elf, err := closure.Read(file)
		if err != nil {
			return nil, err
		}
		if p.onHost && elf.Interpreter != "" {
			return nil, fmt.Errorf("%s is dynamically linked (it wants %s) and would not run on a host with another C library; link it statically", file, elf.Interpreter)
		}
		if err := b.variant.check(file); err != nil {
			return nil, err
		}
		if len(out) > 0 && elf.Platform != out[0].elf.Platform {
			return nil, fmt.Errorf("%s is made for %s and %s for %s", file, elf.GOARCH, out[0].file, out[0].elf.GOARCH)
		}
		out = append(out, located{program: p, file: file, elf: elf})
	}
	return out, nil
}

// files returns the files of the program's layer.
func (p located) files() (layer.Files, error) {
	content, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	return layer.Files{"usr/bin/" + p.name: {Mode: 0o755, Content: content}}, nil
}
