package nvml

import (
	"fmt"
	"os"
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// libraryName is what the driver installs; the link's target carries the
// driver's version.
const libraryName = "libnvidia-ml.so.1"

// libraryDirs are where distributions, NVIDIA's driver container and cloud
// vendors put the driver's libraries.
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

// FindLibrary gives what to open as NVIDIA's management library below
// driverRoot: a path with its links resolved inside that root, or for the root
// "/" also the bare name, for the loader to find by its own configuration. It
// fails with [gpu.ErrNotReady], since the library comes with the driver.
func FindLibrary(driverRoot string) (string, error) {
	for _, dir := range libraryDirs {
		// A driver root is another system's root: its absolute links must not
		// lead out of it.
		path, err := securejoin.SecureJoin(driverRoot, filepath.Join(dir, libraryName))
		if err != nil {
			return "", fmt.Errorf("find %s below driver root %s: %w: %w", libraryName, driverRoot, gpu.ErrNotReady, err)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	if filepath.Clean(driverRoot) == "/" {
		return libraryName, nil
	}
	return "", fmt.Errorf("find %s below driver root %s: %w: not in %v; install the NVIDIA driver or correct the driver root", libraryName, driverRoot, gpu.ErrNotReady, libraryDirs)
}
