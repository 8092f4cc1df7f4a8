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

// Environment is what the driver's programs need to find each other and their
// libraries. Nothing is needed of a driver that is installed in "/".
func (r DriverRoot) Environment() []string {
	if filepath.Clean(string(r)) == "/" {
		return nil
	}
	var libraries []string
	for _, dir := range []string{"usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64"} {
		libraries = append(libraries, filepath.Join(string(r), dir))
	}
	return []string{
		"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"),
		"PATH=" + filepath.Join(string(r), "usr/bin") + ":/usr/bin:/bin",
	}
}
