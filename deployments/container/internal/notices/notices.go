// SPDX-License-Identifier: Apache-2.0

// Package notices gathers the licences and notices of the Go modules in a program.
// The program's distribution must contain them.
//
// Out of scope: judging them.
package notices

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"

	"golang.org/x/mod/module"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/layer"
)

// wanted are the names under which terms go.
var wanted = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|third_party_notices|copyright)`)

// Roots are the folders on this machine with the sources of a program.
type Roots struct {
	// Go is the Go distribution (go env GOROOT).
	Go string
	// Modules is the module cache (go env GOMODCACHE).
	Modules string
}

// Files returns the terms of Go and of all modules in the program's build
// information, as dir/MODULE@VERSION/FILE. It returns an error if a module has no
// terms. It skips the program's own module if that has no version, as in our builds.
func (r Roots) Files(program, own, dir string) (layer.Files, error) {
	modules, err := r.Linked(program, own)
	if err != nil {
		return nil, err
	}
	out := layer.Files{}
	for _, m := range modules {
		files, err := m.Files(dir)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, files)
	}
	return out, nil
}

// source is the folder of a module in the module cache.
func (r Roots) source(m debug.Module) (string, error) {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return "", err
	}
	return filepath.Join(r.Modules, escaped+"@"+version), nil
}

func collect(out layer.Files, from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	found := false
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !wanted.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			return err
		}
		out[path.Join(to, entry.Name())] = layer.File{Mode: 0o644, Content: content}
		found = true
	}
	if !found {
		return fmt.Errorf("none in %s", from)
	}
	return nil
}
