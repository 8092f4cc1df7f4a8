// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// process returns the locks of another process.
func process(t *testing.T, path string) *locks {
	t.Helper()
	l, err := newLocks(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocksExcludeGoroutinesAndProcesses(t *testing.T) {
	path := t.TempDir() + "/lock"
	processes := []*locks{process(t, path), process(t, path)}
	var all sync.WaitGroup
	var inside atomic.Int32
	for i := range 16 {
		all.Go(func() {
			for range 50 {
				unlock, err := processes[i%2].lock(t.Context(), "b", "a")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if n := len(processes[0].queues) + len(processes[1].queues); n != 0 {
		t.Errorf("%d queues left", n)
	}
}

// isFree reports whether another process can take a lock exclusively.
func isFree(t *testing.T, path, name string) bool {
	t.Helper()
	unlock, ok, err := process(t, path).tryLock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		unlock()
	}
	return ok
}

// A caller that times out while it waits for a later lock holds none of the earlier
// ones.
func TestALockThatIsNotReachedLeavesNoEarlierOneBehind(t *testing.T) {
	taken := kindtest.Name("gpu-1b-00-mig-1g-10gb-0")
	wanted := deviceLockNames([]kind.Name{kindtest.Name("gpu-07-00"), taken})
	for name, same := range map[string]bool{"same process": true, "another process": false} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/lock"
			here := process(t, path)
			unlock, err := here.lock(t.Context(), deviceLockName(taken))
			if err != nil {
				t.Fatal(err)
			}
			waiting := here
			if !same {
				waiting = process(t, path)
			}
			for when, wait := range map[string]time.Duration{"without waiting": 0, "after a while": 4 * pollInterval} {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				if _, err := waiting.lock(ctx, wanted...); !errors.Is(err, gpu.ErrTimeout) || !strings.Contains(err.Error(), "wait for other work on device gpu-1b-00-mig-1g-10gb-0") {
					t.Errorf("%s: %v, want %v that names the device", when, err, gpu.ErrTimeout)
				}
			}
			if _, ok, err := waiting.tryLock(t.Context(), deviceLockName(taken)); ok || err != nil {
				t.Errorf("try gave %t, %v for a device that is taken", ok, err)
			}
			if name := "device gpu-07-00"; !isFree(t, path, name) {
				t.Errorf("%s stayed locked", name)
			}
			unlock()
			if name := "device gpu-1b-00-mig-1g-10gb-0"; !isFree(t, path, name) {
				t.Errorf("%s stayed locked", name)
			}
			if n := len(here.queues) + len(waiting.queues); n != 0 {
				t.Errorf("%d queues left", n)
			}
		})
	}
}

// Seats use the MPS daemon of their GPU, so nothing sweeps it while a claim of seats starts
// it.
func TestSeatsTakeTheLockOfTheirGPU(t *testing.T) {
	path := t.TempDir() + "/lock"
	here, there := process(t, path), process(t, path)
	address := gpu.PCIAddress{Bus: 0x1b}
	unlock, err := here.lock(t.Context(), deviceLockName(kindtest.Name("gpu-1b-00-seat")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []kind.Name{kind.Whole(address), {Kind: kind.Seat, Address: address}} {
		if _, ok, err := there.tryLock(t.Context(), deviceLockName(name)); ok || err != nil {
			t.Errorf("try gave %t, %v for %s", ok, err, name)
		}
	}
	unlock()
	if _, ok, err := there.tryLock(t.Context(), deviceLockName(kind.Whole(address))); !ok || err != nil {
		t.Errorf("try gave %t, %v after the seats were unlocked", ok, err)
	}
}
