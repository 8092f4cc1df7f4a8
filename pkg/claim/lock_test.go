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

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
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
	unlock, ok, err := process(t, path).try(t.Context(), name)
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
	gpu1b := gpu.PCIAddress{Bus: 0x1b}
	taken := on{devices: []kind.Name{kindtest.Name("gpu-1b-00-mig-1g-10gb-0")}, gpus: []gpu.PCIAddress{gpu1b}}
	wanted := on{devices: []kind.Name{kindtest.Name("gpu-07-00"), kindtest.Name("gpu-1b-00-mig-1g-10gb-0")}, gpus: []gpu.PCIAddress{{Bus: 7}, gpu1b}}
	for name, same := range map[string]bool{"same process": true, "another process": false} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/lock"
			here := process(t, path)
			unlock, err := here.lockDevices(t.Context(), taken)
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
				if _, err := waiting.lockDevices(ctx, wanted); !errors.Is(err, gpu.ErrTimeout) || !strings.Contains(err.Error(), "wait for other work on device gpu-1b-00-mig-1g-10gb-0") {
					t.Errorf("%s: %v, want %v that names the device", when, err, gpu.ErrTimeout)
				}
			}
			if _, ok, err := waiting.tryDevice(t.Context(), kind.Name{Kind: kind.MIG, Address: gpu1b, Profile: gpu.Profile{Slices: 1, MemoryGB: 10}}); ok || err != nil {
				t.Errorf("try gave %t, %v for a device that is taken", ok, err)
			}
			for _, name := range []string{"gpu-07-00", "device gpu-07-00"} {
				if !isFree(t, path, name) {
					t.Errorf("%s stayed locked", name)
				}
			}
			unlock()
			for _, name := range []string{"gpu-1b-00", "device gpu-1b-00-mig-1g-10gb-0"} {
				if !isFree(t, path, name) {
					t.Errorf("%s stayed locked", name)
				}
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
	unlock, err := here.lockDevices(t.Context(), onDevicesOf(plan.Plan{Devices: []plan.Device{{Name: kindtest.Name("gpu-1b-00-seat")}}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []kind.Name{kind.Whole(address), {Kind: kind.Seat, Address: address}} {
		if _, ok, err := there.tryDevice(t.Context(), name); ok || err != nil {
			t.Errorf("try gave %t, %v for %s", ok, err, name)
		}
	}
	unlock()
	if _, ok, err := there.tryDevice(t.Context(), kind.Whole(address)); !ok || err != nil {
		t.Errorf("try gave %t, %v after the seats were unlocked", ok, err)
	}
}

// An agent of an older release locks GPUs and has no device locks.
func TestAnOlderAgentIsExcludedFromAGPUInUse(t *testing.T) {
	path := t.TempDir() + "/lock"
	address := gpu.PCIAddress{Bus: 0x1b}
	older, here, there := process(t, path), process(t, path), process(t, path)
	one := on{devices: []kind.Name{kindtest.Name("gpu-1b-00-mig-1g-10gb-0")}, gpus: []gpu.PCIAddress{address}}
	other := on{devices: []kind.Name{kindtest.Name("gpu-1b-00-mig-1g-10gb-1")}, gpus: []gpu.PCIAddress{address}}
	var unlock []func()
	for _, work := range []struct {
		by *locks
		on on
	}{{here, one}, {there, other}} {
		release, err := work.by.lockDevices(t.Context(), work.on)
		if err != nil {
			t.Fatalf("two agents of this release on two devices: %v", err)
		}
		unlock = append(unlock, release)
	}
	for _, release := range unlock {
		if _, ok, err := older.try(t.Context(), address.DeviceName()); ok || err != nil {
			t.Errorf("the older agent: %t, %v while a device is worked on", ok, err)
		}
		release()
	}
	release, ok, err := older.try(t.Context(), address.DeviceName())
	if !ok || err != nil {
		t.Fatalf("the older agent: %t, %v when no agent works on the GPU", ok, err)
	}
	if _, ok, err := here.tryGPU(t.Context(), address); ok || err != nil {
		t.Errorf("this agent: %t, %v while the older one works on the GPU", ok, err)
	}
	release()
	release, ok, err = here.tryGPU(t.Context(), address)
	if !ok || err != nil {
		t.Fatalf("this agent: %t, %v when no agent works on the GPU", ok, err)
	}
	release()
}

func TestLockWaitsUntilTheContextEnds(t *testing.T) {
	path := t.TempDir() + "/lock"
	here, there := process(t, path), process(t, path)
	unlock, err := here.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*locks{"same process": here, "another process": there} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { _, err := l.lock(ctx, "b", "a"); result <- err }()
		cancel()
		if err := <-result; !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("%s: %v, want %v", name, err, gpu.ErrTimeout)
		}
		if _, ok, err := l.try(t.Context(), "a"); ok || err != nil {
			t.Errorf("%s: try gave %t, %v for a lock that is taken", name, ok, err)
		}
		// After a timeout, lock has released the locks taken before.
		unlockB, ok, err := l.try(t.Context(), "b")
		if !ok || err != nil {
			t.Fatalf("%s: try gave %t, %v for a lock that is free", name, ok, err)
		}
		unlockB()
	}
	unlock()
	unlock, err = there.lock(t.Context(), "a", "a")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
