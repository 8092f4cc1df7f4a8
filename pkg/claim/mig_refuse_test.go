// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

func TestMIGDevicesThatCannotBePrepared(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(*migWorld)
		other   string // device of another claim
		devices []string
		change  func(*resourceapi.DeviceAllocationResult)
		is      error
		says    []string
	}{
		"a profile that the GPU has not": {
			devices: []string{h100 + "-mig-1g-5gb-0"}, is: gpu.ErrNotFound,
			says: []string{"GPU gpu-1b-00 at 0000:1b:00.0 has no MIG profile 1g.5gb at memory slice 0"},
		},
		"a placement that the profile has not": {
			devices: []string{h100 + "-mig-2g-20gb-1"}, is: gpu.ErrNotFound, says: []string{"2g.20gb at memory slice 1"},
		},
		"another claim has the same one": {
			other: h100 + "-mig-1g-10gb-3", devices: []string{h100 + "-mig-1g-10gb-3"}, is: gpu.ErrInUse,
			says: []string{"another claim holds gpu-1b-00-mig-1g-10gb-3 (prepared)"},
		},
		"another claim has one that overlaps": {
			other: h100 + "-mig-3g-40gb-0", devices: []string{h100 + "-mig-1g-10gb-3"}, is: gpu.ErrInUse,
			says: []string{"device gpu-1b-00-mig-1g-10gb-3: already in use: another claim"},
		},
		"another claim has the whole GPU": {
			other: h100, devices: []string{h100 + "-mig-1g-10gb-3"}, is: gpu.ErrInUse, says: []string{"holds gpu-1b-00 (prepared)"},
		},
		"the whole GPU, and another claim has a part": {
			other: h100 + "-mig-1g-10gb-3", devices: []string{h100}, is: gpu.ErrInUse, says: []string{"holds gpu-1b-00-mig-1g-10gb-3"},
		},
		"overlapping in one claim": {
			devices: []string{h100 + "-mig-3g-40gb-0", h100 + "-mig-1g-10gb-0"}, is: gpu.ErrInvalid,
			says: []string{"conflicts with gpu-1b-00-mig-3g-40gb-0"},
		},
		"with its whole GPU": {
			devices: []string{h100, h100 + "-mig-1g-10gb-0"}, is: gpu.ErrInvalid, says: []string{"conflicts with gpu-1b-00"},
		},
		"twice in one claim": {
			devices: []string{h100 + "-mig-1g-10gb-0", h100 + "-mig-1g-10gb-0"}, is: gpu.ErrInvalid, says: []string{"allocated twice"},
		},
		"a configuration for whole GPUs": {
			devices: []string{h100 + "-mig-1g-10gb-0"}, is: gpu.ErrInvalid,
			change: func(a *resourceapi.DeviceAllocationResult) {
				a.Config = []resourceapi.DeviceAllocationConfiguration{opaque(resourceapi.AllocationConfigSourceClaim, driver, gpuConfig)}
			},
			says: []string{"a GpuConfig cannot configure a MIG device; write a MigConfig"},
		},
		"a place taken behind our back": {
			before:  func(w *migWorld) { w.administrator("makes", 0, "2g.20gb", 2) },
			devices: []string{h100 + "-mig-1g-10gb-3"}, is: gpu.ErrInUse,
			says: []string{"1g.10gb@3 on GPU gpu-1b-00 at 0000:1b:00.0", "MIG instance 2g.20gb@2", "which this driver has not made", "nvidia-smi mig -dci and -dgi"},
		},
		"exactly the place taken behind our back": {
			before:  func(w *migWorld) { w.administrator("makes", 0, "1g.10gb", 3) },
			devices: []string{h100 + "-mig-2g-20gb-4", h100 + "-mig-1g-10gb-3"}, is: gpu.ErrInUse,
			says: []string{"MIG instance 1g.10gb@3", "which this driver has not made"},
		},
		"a process holds the GPU": {
			before:  func(w *migWorld) { must(w.t, w.sim.AddProcess(1, nvmlsim.Process{PID: 4711})) },
			devices: []string{h100 + "-mig-1g-10gb-0", h100Other + "-mig-1g-10gb-0"}, is: gpu.ErrInUse,
			says: []string{"switch on the MIG mode of GPU at 0000:43:00.0", "stop what uses the GPU: process 4711"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			m := w.start()
			if c.other != "" {
				if _, err := m.Prepare(once(), newClaim("other", c.other)); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != nil {
				c.before(w)
			}
			before := w.left(m)
			refused := newClaim("refused", c.devices...)
			if c.change != nil {
				c.change(&refused.Status.Allocation.Devices)
			}
			devices, err := m.Prepare(once(), refused)
			if !errors.Is(err, c.is) || len(devices) != 0 {
				t.Errorf("got %v, %v\nwant %v", devices, err, c.is)
			}
			for _, says := range c.says {
				if !strings.Contains(fmt.Sprint(err), says) {
					t.Errorf("error %v\nwant it to say %q", err, says)
				}
			}
			if diff := cmp.Diff(before, w.left(m)); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

// The conflicting partition or process goes away within the call, and a later attempt
// succeeds.
func TestPartitioningWaitsForTransientConflicts(t *testing.T) {
	dir := t.TempDir()
	w := newMIGWorld(t, dir, "dgx-h100")
	must(t, w.sim.AddProcess(0, nvmlsim.Process{PID: 4711}))
	synctest.Test(t, func(t *testing.T) {
		m := w.start()
		result := make(chan error, 1)
		go func() {
			_, err := m.Prepare(t.Context(), newClaim("cut", h100+"-mig-1g-10gb-0"))
			result <- err
		}()
		synctest.Wait()
		must(t, w.sim.RemoveProcess(4711))
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff("0 on: 1g.10gb@0\n", w.cuts()); diff != "" {
		t.Errorf("cuts (-want +got):\n%s", diff)
	}
}

// A MIG mode that cannot be switched off does not block the end of a pod. Recovery
// switches it off as soon as possible.
func TestAMIGModeThatCannotBeSwitchedOffYet(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	m, c := w.start(), newClaim("cut", h100+"-mig-1g-10gb-0")
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	w.administrator("makes", 0, "1g.10gb", 6)
	if err := m.Unprepare(once(), c.UID); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("modes/gpu-1b-00.record\n0 on: 1g.10gb@6\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	whole := newClaim("whole", h100)
	if _, err := m.Prepare(once(), whole); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "switch off the MIG mode of GPU gpu-1b-00 at 0000:1b:00.0: already in use by MIG instance 1g.10gb@6") {
		t.Errorf("a whole GPU: %v, want %v that names the conflict", err, gpu.ErrInUse)
	}
	w.scan() // as the controller does after that
	w.administrator("destroys", 0, "1g.10gb", 6)
	if _, err := m.Prepare(once(), whole); err != nil {
		t.Errorf("the whole GPU, which is free: %v", err)
	}
	if err := m.Unprepare(once(), whole.UID); err != nil {
		t.Error(err)
	}
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestStaticPartitionsAreUsedAndNeverChanged(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	w.static = true
	w.administrator("makes", 0, "1g.10gb", 0)
	w.administrator("makes", 0, "2g.20gb", 4)
	w.scan()
	m, c := w.start(), newClaim("cut", h100+"-mig-2g-20gb-4", h100+"-mig-1g-10gb-0")
	devices, err := m.Prepare(once(), c)
	if err != nil {
		t.Fatal(err)
	}
	there := w.uuids(0)
	if diff := cmp.Diff([]string{there[1], there[0]}, []string{devices[0].UUID, devices[1].UUID}); diff != "" {
		t.Errorf("UUIDs (-want +got):\n%s", diff)
	}
	if _, err := m.Prepare(once(), newClaim("missing", h100+"-mig-1g-10gb-1")); !errors.Is(err, gpu.ErrNotFound) || !strings.Contains(err.Error(), "no administrator has made 1g.10gb@1 on GPU gpu-1b-00") {
		t.Errorf("one that is not there: %v", err)
	}
	w.restart(t.Context())
	// The partition stays an administrator's after the flag changes.
	w.static = false
	m, _ = w.restart(t.Context())
	w.administrator("destroys", 0, "1g.10gb", 0)
	if _, err := m.Recover(t.Context()); !errors.Is(err, gpu.ErrNotFound) || !strings.Contains(err.Error(), "an administrator has to make it again") {
		t.Errorf("one that is gone: %v", err)
	}
	if err := m.Unprepare(once(), c.UID); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("0 on: 2g.20gb@4\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
