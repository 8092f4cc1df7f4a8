// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A device file takes data and refuses to sync them, with EINVAL.
func TestARecordThatTheDiskDoesNotSyncIsAnErrorIfItMustOutliveTheBoot(t *testing.T) {
	const device = "/dev/null"
	require.Error(t, "synced", (store.Disk{}).WriteNew(device, []byte("data")), syscall.EINVAL)
	if err := (store.Unsynced{}).WriteNew(device, []byte("data")); err != nil {
		t.Errorf("unsynced: %v, want no error, because it does not sync", err)
	}
}
