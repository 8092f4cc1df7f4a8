// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// Module is a Go module that is linked into a program, or Go itself.
type Module struct {
	Path, Version string
	// Sum is the checksum of go.sum. Go itself has none.
	Sum string
	// Dir has the sources on this machine.
	Dir string
}

// GoPath is the path of the module that stands for Go's standard library.
const GoPath = "stdlib"

// Linked returns Go and the modules in the program's build information, in the order of
// their paths. It skips the program's own module if that has no version, as in our builds.
func (r Roots) Linked(program, own string) ([]Module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("modules of %s: %w", program, err)
	}
	modules := []Module{{Path: GoPath, Version: info.GoVersion, Dir: r.Go}}
	for _, dep := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		if dep.Path == own || strings.HasPrefix(dep.Path, own+"/") {
			continue
		}
		dir, err := r.source(*dep)
		if err != nil {
			return nil, err
		}
		modules = append(modules, Module{Path: dep.Path, Version: dep.Version, Sum: dep.Sum, Dir: dir})
	}
	slices.SortFunc(modules, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
}

// Folder returns the folder for the module's terms below dir.
func (m Module) Folder(dir string) string {
	if m.Path == GoPath {
		return path.Join(dir, "go@"+m.Version)
	}
	return path.Join(dir, m.Path+"@"+m.Version)
}

// Files returns the terms of the module in its folder below dir.
func (m Module) Files(dir string) (layer.Files, error) {
	out := layer.Files{}
	if err := collect(out, m.Dir, m.Folder(dir)); err != nil {
		return nil, fmt.Errorf("terms of module %s: %w", m.Path, err)
	}
	return out, nil
}

// texts are phrases by which a licence is known, in lower case with single spaces.
var texts = []struct {
	id       string
	has, not string
}{
	{id: "Apache-2.0", has: "apache license version 2.0, january 2004"},
	{id: "BSD-2-Clause", has: "redistribution and use in source and binary forms", not: "neither the name"},
	{id: "BSD-3-Clause", has: "neither the name"},
	{id: "ISC", has: "permission to use, copy, modify, and"},
	{id: "MIT", has: "permission is hereby granted, free of charge, to any person"},
	{id: "MPL-2.0", has: "mozilla public license version 2.0"},
	{id: "MPL-2.0", has: "mozilla public license, version 2.0"},
}

// Licence returns the module's licence as an SPDX expression. It returns an error if it
// knows none of the texts.
func (m Module) Licence() (string, error) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, entry := range entries {
		name := strings.ToLower(entry.Name())
		if !entry.Type().IsRegular() || !strings.HasPrefix(name, "licen") && !strings.HasPrefix(name, "copying") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(m.Dir, entry.Name()))
		if err != nil {
			return "", err
		}
		found = append(found, licences(string(content))...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("licence of module %s: %s has no text that is known", m.Path, m.Dir)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}

// licences returns the licences whose text is in a file.
func licences(content string) []string {
	plain := strings.Join(strings.Fields(strings.ToLower(content)), " ")
	var found []string
	for _, text := range texts {
		if strings.Contains(plain, text.has) && (text.not == "" || !strings.Contains(plain, text.not)) {
			found = append(found, text.id)
		}
	}
	return found
}
