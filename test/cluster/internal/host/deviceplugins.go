// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// devicePluginDir is where every kubelet listens for device plugins, whatever
// its --root-dir; it empties the directory first.
const devicePluginDir = "/var/lib/kubelet/device-plugins"

// KubeletRuns reports whether a kubelet listens for device plugins on this
// machine.
func KubeletRuns() bool {
	conn, err := net.DialTimeout("unix", filepath.Join(devicePluginDir, "kubelet.sock"), time.Second) //nolint:noctx // a second at most
	if err != nil {
		return false
	}
	conn.Close() //nolint:errcheck // nothing was written
	return true
}

// RemoveDevicePluginDir removes the files that an ended kubelet left there. It
// removes the directories too if they are then empty.
func RemoveDevicePluginDir() error {
	if KubeletRuns() {
		return nil
	}
	for _, file := range []string{"kubelet.sock", "kubelet_internal_checkpoint"} {
		if err := os.Remove(filepath.Join(devicePluginDir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove device plugin socket: %w", err)
		}
	}
	RemoveIfEmpty(devicePluginDir, filepath.Dir(devicePluginDir))
	return nil
}

// RemoveIfEmpty removes directories, in the given order, up to the first that is not
// empty.
func RemoveIfEmpty(dirs ...string) {
	for _, dir := range dirs {
		if os.Remove(dir) != nil {
			return
		}
	}
}
