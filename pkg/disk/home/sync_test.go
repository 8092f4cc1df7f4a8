// SPDX-License-Identifier: Apache-2.0

package home_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A MIG mode outlives the machine's boot on some GPUs, and so must its record. The
// configuration of a node outlives every boot. Other records end with the boot. The test
// replaces the temporary file with a device file, which refuses to sync.
func TestRecordsThatOutliveTheBootAreSyncedToTheDisk(t *testing.T) {
	driver := t.TempDir()
	h := enter(t, driver)
	for dir, c := range map[string]struct {
		records *store.Store
		want    error
	}{
		"mig-modes":     {h.MIGModes, syscall.EINVAL},
		"node-config":   {h.NodeConfig, syscall.EINVAL},
		"claims":        {h.Claims, nil},
		"time-slices":   {h.TimeSlices, nil},
		"compute-modes": {h.ComputeModes, nil},
	} {
		must(t, os.Symlink("/dev/null", filepath.Join(driver, "agent", dir, "key.tmp")))
		require.Error(t, "a record of "+dir+" on a disk that syncs nothing", c.records.Write("key", []byte("data")), c.want)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
