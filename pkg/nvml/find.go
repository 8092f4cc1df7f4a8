// SPDX-License-Identifier: Apache-2.0

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

// FindLibrary gives what to open as NVIDIA's management library below
// driverRoot: a path with its links resolved inside that root, or for the root
// "/" also the bare name, for the loader to find by its own configuration. It
// fails with [gpu.ErrNotReady], since the library comes with the driver.
func FindLibrary(driverRoot string) (string, error) {
	for _, dir := range gpu.LibraryDirs() {
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
	return "", fmt.Errorf("find %s below driver root %s: %w: not in %v; install the NVIDIA driver or correct the driver root (--driver-root)", libraryName, driverRoot, gpu.ErrNotReady, gpu.LibraryDirs())
}
