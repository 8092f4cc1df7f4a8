// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/notices"
)

// ownModule is what our modules' paths begin with.
const ownModule = "github.com/gpu-dra/gpu-dra-driver"

// termsDir is the folder in an image with the terms of its contents.
const termsDir = "usr/share/doc/gpu-dra-driver"

// modulesDir is the folder with the terms of Go modules.
const modulesDir = termsDir + "/modules"

// terms returns the licences of the programs and of the modules linked into them. If the
// image has no C library, they include the licence of the one that is linked into programs.
func (b builder) terms(ctx context.Context, programs []located, hasCLibrary bool) (layer.Files, error) {
	licence, err := os.ReadFile(b.licence)
	if err != nil {
		return nil, err
	}
	files := layer.Files{path.Join(termsDir, "LICENSE"): {Mode: 0o644, Content: licence}}
	var archives []string
	for _, p := range programs {
		linked, err := b.sources.Files(p.file, ownModule, modulesDir)
		if err != nil {
			return nil, err
		}
		// Programs have modules in common.
		maps.Copy(files, linked)
		archive, err := b.linkedCLibrary(p)
		if err != nil {
			return nil, err
		}
		if archive != "" && !hasCLibrary {
			archives = append(archives, archive)
		}
	}
	packages, err := b.system.Files(ctx, archives...)
	if err != nil {
		return nil, err
	}
	return files, files.Add(packages)
}

// linkedCLibrary returns the file of the system with the C library that is linked into the
// program. It returns "" if the program loads its C library, or uses none.
func (b builder) linkedCLibrary(p located) (string, error) {
	if !p.elf.IsStatic() {
		return "", nil
	}
	info, err := buildinfo.ReadFile(p.file)
	if err != nil {
		return "", fmt.Errorf("build settings of %s: %w", p.file, err)
	}
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		return "", nil
	}
	for _, dir := range b.directories(p.elf) {
		file := filepath.Join(dir, "libc.a")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s has a C library linked into it, and libc.a, which shows its terms, is not in %s; install libc6-dev", p.file, strings.Join(b.directories(p.elf), ", "))
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
