// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A user can create claims that fail as often as the kubelet tries.
func TestFailedPreparesScanTheNodeOnceAMinuteAtMost(t *testing.T) {
	for sentinel, want := range map[error]int{
		gpu.ErrInvalid: 0, gpu.ErrNoCapacity: 0, gpu.ErrNotSupported: 0, gpu.ErrUnhealthy: 0, errors.New("no space left on device"): 0,
		gpu.ErrLost: 1, gpu.ErrTimeout: 1, gpu.ErrNotReady: 1, gpu.ErrNotFound: 1, gpu.ErrInUse: 1,
	} {
		scans, i := 0, New(Options{Clock: clock.RealClock{}})
		for range 3 {
			i.PrepareFailed(fmt.Errorf("prepare: %w", sentinel))
			select {
			case <-i.due:
				scans++
			default:
			}
		}
		if scans != want {
			t.Errorf("three prepares that fail with %q request %d scans, want %d", sentinel, scans, want)
		}
	}
}

// A program that fails again and again, also on several GPUs.
func TestFaultsOfProgramsScanTheNodeOnceAMinuteAtMost(t *testing.T) {
	for xid, want := range map[uint64]int{13: 0, 31: 0, 32: 1, 69: 1, 94: 1, 109: 1, 154: 3} {
		scans, i := 0, New(Options{Clock: clock.RealClock{}})
		for n := range 3 {
			i.recordEvent(t.Context(), gpu.Event{Kind: gpu.EventXID, XID: xid, UUID: fmt.Sprint("GPU-", n)})
			select {
			case <-i.due:
				scans++
			default:
			}
		}
		if scans != want || i.again != (xid == 154) {
			t.Errorf("three times XID %d request %d scans, want %d, and one more later: %t", xid, scans, want, i.again)
		}
	}
}
