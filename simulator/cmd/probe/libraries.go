// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// library is a shared library of the driver.
type library struct {
	Path string `json:"path"`
	// Target of a symbolic link; empty for a file.
	Target string `json:"target,omitempty"`
}

var libraryDirs = []string{"usr/lib64", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"}

func isDriverLibrary(name string) bool {
	return strings.HasPrefix(name, "libcuda.") || strings.HasPrefix(name, "libnvidia-")
}

func lookAtLibraries(r root) ([]library, error) {
	libraries := []library{}
	for _, dir := range libraryDirs {
		entries, err := os.ReadDir(r.path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !isDriverLibrary(entry.Name()) {
				continue
			}
			l := library{Path: filepath.Join("/", dir, entry.Name())}
			if entry.Type()&fs.ModeSymlink != 0 {
				if l.Target, err = os.Readlink(r.path(l.Path)); err != nil {
					return nil, err
				}
			}
			libraries = append(libraries, l)
		}
	}
	slices.SortFunc(libraries, func(a, b library) int { return strings.Compare(a.Path, b.Path) })
	return libraries, nil
}

// lookAtLDCache names the driver's libraries in the loader's cache. The names
// are zero-terminated in all formats of that file, which is all that is used
// of it.
func lookAtLDCache(r root) ([]string, error) {
	names := []string{}
	data, err := os.ReadFile(r.path("etc/ld.so.cache"))
	if errors.Is(err, fs.ErrNotExist) {
		return names, nil
	}
	if err != nil {
		return nil, err
	}
	for _, field := range bytes.Split(data, []byte{0}) {
		if name := string(field); isDriverLibrary(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
