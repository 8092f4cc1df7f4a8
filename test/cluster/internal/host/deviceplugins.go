// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"os"
	"path/filepath"
	"time"
)

// DevicePluginDir is where every kubelet listens for device plugins, whatever its --root-dir.
const DevicePluginDir = "/var/lib/kubelet/device-plugins"

// KubeletRuns reports whether a kubelet that is not of a cluster listens for device plugins on
// this machine.
func KubeletRuns() bool {
	conn, err := net.DialTimeout("unix", filepath.Join(DevicePluginDir, "kubelet.sock"), time.Second) //nolint:noctx // a second at most
	if err != nil {
		return false
	}
	conn.Close() //nolint:errcheck // nothing was written
	return true
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
