// SPDX-License-Identifier: Apache-2.0

package main

import (
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
}

var libraryDirs = []string{"usr/lib64", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"}

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
			if name := entry.Name(); strings.HasPrefix(name, "libcuda.") || strings.HasPrefix(name, "libnvidia-") {
				libraries = append(libraries, library{Path: filepath.Join("/", dir, name)})
			}
		}
	}
	slices.SortFunc(libraries, func(a, b library) int { return strings.Compare(a.Path, b.Path) })
	return libraries, nil
}
