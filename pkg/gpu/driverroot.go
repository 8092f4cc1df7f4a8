// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// DriverRoot is the folder under which the NVIDIA driver is installed: "/", or
// such as "/run/nvidia/driver" where a container brings it.
type DriverRoot string

// binaryDirs have the driver's programs, relative to a root, in the order in which
// they are looked for: those of a whole system, and of a root that holds nothing
// but the driver, as GKE's does.
var binaryDirs = []string{"usr/bin", "bin", "usr/local/bin"}

// libraryDirs are where distributions, NVIDIA's driver container and cloud
// vendors put the driver's libraries, relative to a root.
var libraryDirs = []string{
	"usr/lib64",
	"usr/lib/x86_64-linux-gnu",
	"usr/lib/aarch64-linux-gnu",
	"usr/lib/x86_64-linux-gnu/nvidia/current",
	"usr/lib/aarch64-linux-gnu/nvidia/current",
	"lib64",
	"lib/x86_64-linux-gnu",
	"lib/aarch64-linux-gnu",
	"usr/local/nvidia/lib64",
	"home/kubernetes/bin/nvidia/lib64",
	"usr/lib",
	"lib",
}

// LibraryDirs are the folders, relative to any root, in which the driver's
// libraries are looked for, in that order.
func LibraryDirs() []string { return slices.Clone(libraryDirs) }

// Binaries are the paths that one of the driver's programs can have, the likeliest
// first; without a name, the folders.
func (r DriverRoot) Binaries(name string) []string {
	var paths []string
	for _, dir := range binaryDirs {
		paths = append(paths, filepath.Join(string(r), dir, name))
	}
	return paths
}

// Find gives the path of one of the driver's programs, as stat sees the files,
// which is to be [os.Stat] among the files that the program will have. It is
// [ErrNotReady] where there is none, since programs come with the driver.
func (r DriverRoot) Find(name string, stat func(string) (fs.FileInfo, error)) (string, error) {
	for _, path := range r.Binaries(name) {
		// Whatever else is wrong with it, who runs it is told.
		if _, err := stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s below driver root %s: %w: not in %v; install the NVIDIA driver or correct the driver root (--driver-root)", name, r, ErrNotReady, binaryDirs)
}

// Environment is what the driver's programs need to find each other and their
// libraries. Nothing is needed of a driver that is installed in "/". Else the
// folders of "/" come first: below the root may be a whole other system, whose C
// library is none for the loader here.
func (r DriverRoot) Environment() []string {
	if filepath.Clean(string(r)) == "/" {
		return nil
	}
	var libraries []string
	for _, root := range []string{"/", string(r)} {
		for _, dir := range libraryDirs {
			libraries = append(libraries, filepath.Join(root, dir))
		}
	}
	return []string{
		"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"),
		"PATH=" + strings.Join(append(r.Binaries(""), "/usr/bin", "/bin"), ":"),
	}
}
