package gpu

import (
	"path/filepath"
	"strings"
)

// DriverRoot is the folder under which the NVIDIA driver is installed: "/", or
// such as "/run/nvidia/driver" where a container brings it.
type DriverRoot string

// Binary is the path of one of the driver's programs.
func (r DriverRoot) Binary(name string) string {
	return filepath.Join(string(r), "usr/bin", name)
}

// libraryDirs of the usual distributions, relative to a root.
var libraryDirs = []string{"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64"}

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
		"PATH=" + r.Binary("") + ":/usr/bin:/bin",
	}
}
