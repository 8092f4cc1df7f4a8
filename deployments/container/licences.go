// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/debian"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/notices"
)

// ownModule is what our modules' paths begin with.
const ownModule = "github.com/gpu-dra/gpu-dra-driver"

// termsDir is the folder in an image with the terms of its contents.
const termsDir = "usr/share/doc/gpu-dra-driver"

// terms returns the licences of the programs and of the modules linked into them.
func (b builder) terms(ctx context.Context, programs []located) (layer.Files, error) {
	licence, err := os.ReadFile(b.licence)
	if err != nil {
		return nil, err
	}
	files := layer.Files{path.Join(termsDir, "LICENSE"): {Mode: 0o644, Content: licence}}
	var packaged []string
	for _, p := range programs {
		if p.debian {
			packaged = append(packaged, p.file)
			continue
		}
		linked, err := b.sources.Files(p.file, ownModule, path.Join(termsDir, "modules"))
		if err != nil {
			return nil, err
		}
		// Programs have modules in common.
		maps.Copy(files, linked)
	}
	packages, err := debian.Files(ctx, packaged...)
	if err != nil {
		return nil, err
	}
	return files, files.Add(packages)
}

// goRoots returns the folders in which Go keeps sources.
func goRoots(ctx context.Context) (notices.Roots, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return notices.Roots{}, fmt.Errorf("go env: %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		return notices.Roots{}, fmt.Errorf("go env GOROOT GOMODCACHE printed %q", out)
	}
	return notices.Roots{Go: lines[0], Modules: lines[1]}, nil
}
