// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"os"
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// libraryName is the link to the library; the name of its target contains the
// driver's version.
const libraryName = "libnvidia-ml.so.1"

// FindLibrary returns the path of NVIDIA's management library below driverRoot, with
// links resolved inside that root. If the root is "/" and the path does not exist,
// it returns the bare name, which the loader finds by its own configuration. It
// returns [gpu.ErrNotReady] if the library is missing: the driver installs it.
func FindLibrary(driverRoot string) (string, error) {
	for _, dir := range gpu.LibraryDirs() {
		// Absolute links in a driver root are relative to that root.
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
	return "", gpu.NotBelow(driverRoot, libraryName, gpu.LibraryDirs())
}
