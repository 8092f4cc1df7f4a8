// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/closure"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// cLibrary returns the C library that the programs need, at the paths where its
// loader finds it. It contains all that the programs, and the libraries that they
// load from the driver, need of this machine. Static programs need none.
func cLibrary(ctx context.Context, programs []located) (layer.Files, error) {
	files := layer.Files{}
	from := []string{debian.OSRelease}
	dir := path.Join("usr/lib", programs[0].elf.Triplet)
	for _, p := range programs {
		if p.elf.Interpreter == "" {
			continue
		}
		libraries, err := p.elf.Libraries(p.elf.Directories(), runtimeLibraries()...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, name := range closure.Names(libraries) {
			content, err := os.ReadFile(libraries[name])
			if err != nil {
				return nil, err
			}
			files[path.Join(dir, name)] = layer.File{Mode: 0o755, Content: content}
			from = append(from, libraries[name])
		}
		// The base has /lib and /lib64 as links into /usr.
		files[path.Join("usr", p.elf.Interpreter)] = layer.File{Target: "/" + path.Join(dir, path.Base(p.elf.Interpreter))}
	}
	if len(files) == 0 {
		return nil, nil
	}
	release, err := os.ReadFile(debian.OSRelease)
	if err != nil {
		return nil, err
	}
	files["etc/os-release"] = layer.File{Mode: 0o644, Content: release}
	packages, err := debian.Files(ctx, from...)
	if err != nil {
		return nil, err
	}
	return files, files.Add(packages)
}
