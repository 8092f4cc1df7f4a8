// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/closure"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// cLibrary returns the C library that the programs need, at the paths where its
// loader finds it. It contains all that the programs, and the libraries that they
// load from the driver, need of the system. Static programs need none. The second result
// has the file of this machine for each library.
func (b builder) cLibrary(ctx context.Context, programs []located) (layer.Files, map[string]string, error) {
	files, origins := layer.Files{}, map[string]string{}
	from := []string{b.system.OSRelease()}
	dir := path.Join("usr/lib", programs[0].elf.Triplet)
	for _, p := range programs {
		if p.elf.Interpreter == "" {
			continue
		}
		libraries, err := p.elf.Libraries(b.directories(p.elf), runtimeLibraries()...)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, name := range closure.Names(libraries) {
			content, err := os.ReadFile(libraries[name])
			if err != nil {
				return nil, nil, err
			}
			files[path.Join(dir, name)] = layer.File{Mode: 0o755, Content: content}
			origins[path.Join(dir, name)] = libraries[name]
			from = append(from, libraries[name])
		}
		// The base has /lib and /lib64 as links into /usr.
		files[path.Join("usr", p.elf.Interpreter)] = layer.File{Target: "/" + path.Join(dir, path.Base(p.elf.Interpreter))}
	}
	if len(files) == 0 {
		return nil, nil, nil
	}
	release, err := os.ReadFile(b.system.OSRelease())
	if err != nil {
		return nil, nil, err
	}
	files["etc/os-release"] = layer.File{Mode: 0o644, Content: release}
	packages, err := b.system.Files(ctx, from...)
	if err != nil {
		return nil, nil, err
	}
	return files, origins, files.Add(packages)
}

// directories returns the search path of the program's loader in the system.
func (b builder) directories(p closure.Program) []string {
	var dirs []string
	for _, dir := range p.Directories() {
		dirs = append(dirs, b.system.Path(dir))
	}
	return dirs
}
