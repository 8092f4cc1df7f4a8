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

// DriverRoot is the folder under which the NVIDIA driver is installed: "/", or a
// folder such as "/run/nvidia/driver" if a container installs the driver.
type DriverRoot string

// binaryDirs lists the folders with the driver's programs, relative to a root, in
// search order: first the folders of a whole system, then the folder of a root
// that holds nothing but the driver, as on GKE.
var binaryDirs = []string{"usr/bin", "bin", "usr/local/bin"}

// libraryDirs lists the folders, relative to a root, of the driver's libraries.
// Distributions, NVIDIA's driver container and cloud vendors install them there.
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

// LibraryDirs returns the folders with the driver's libraries, relative to any
// root, in search order.
func LibraryDirs() []string { return slices.Clone(libraryDirs) }

// Binaries returns the paths that a program of the driver can have, in search
// order. For an empty name it returns the folders.
func (r DriverRoot) Binaries(name string) []string {
	var paths []string
	for _, dir := range binaryDirs {
		paths = append(paths, filepath.Join(string(r), dir, name))
	}
	return paths
}

// Find returns the path of a program of the driver. stat must be [os.Stat] in the
// file system in which the program will run. The error is [ErrNotReady] if no path
// exists, because the driver's installation brings the programs.
func (r DriverRoot) Find(name string, stat func(string) (fs.FileInfo, error)) (string, error) {
	for _, path := range r.Binaries(name) {
		// Any other error appears again, with its cause, when the program is run.
		if _, err := stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return "", NotBelow(string(r), name, binaryDirs)
}

// NotBelow returns the error that a file of the driver is in none of the folders below a driver root. It wraps
// [ErrNotReady].
func NotBelow(root, name string, dirs []string) error {
	return fmt.Errorf("find %s below driver root %s: %w: not in %v; install the NVIDIA driver or correct the driver root (--driver-root)", name, root, ErrNotReady, dirs)
}

// Environment returns the variables by which the driver's programs find each other
// and their libraries. It returns none for a driver that is installed in "/". The
// folders of "/" come first: the root may hold a whole other system, whose C
// library does not work with this system's loader.
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
