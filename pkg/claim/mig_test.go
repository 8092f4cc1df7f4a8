// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The first GPUs of the models dgx-h100 and dgx-a100.
const (
	h100      = "gpu-1b-00"
	h100Other = "gpu-43-00"
	a100      = "gpu-07-00"
)

func TestMIGDevicesArePreparedAndUnprepared(t *testing.T) {
	for name, c := range map[string]struct {
		devices []string
		cuts    string
	}{
		"one partition":             {[]string{h100 + "-mig-1g-10gb-3"}, "0 on: 1g.10gb@3\n"},
		"all of a GPU as one":       {[]string{h100 + "-mig-7g-80gb-0"}, "0 on: 7g.80gb@0\n"},
		"a mix on one GPU":          {[]string{h100 + "-mig-1g-10gb-0", h100 + "-mig-1g-10gb-1", h100 + "-mig-2g-20gb-2", h100 + "-mig-3g-40gb-4"}, "0 on: 1g.10gb@0 1g.10gb@1 2g.20gb@2 3g.40gb@4\n"},
		"on two GPUs":               {[]string{h100Other + "-mig-1g-20gb-6", h100 + "-mig-1g-10gb-me-0"}, "0 on: 1g.10gb+me@0\n1 on: 1g.20gb@6\n"},
		"next to a whole GPU":       {[]string{h100, h100Other + "-mig-4g-40gb-0"}, "1 on: 4g.40gb@0\n"},
		"seven of the smallest":     {sevenOf(h100, "1g-10gb"), "0 on: 1g.10gb@0 1g.10gb@1 1g.10gb@2 1g.10gb@3 1g.10gb@4 1g.10gb@5 1g.10gb@6\n"},
		"with its whole GPU's twin": {[]string{h100 + "-mig-3g-40gb-0", h100 + "-mig-3g-40gb-4"}, "0 on: 3g.40gb@0 3g.40gb@4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			m, claim := w.start(), newClaim("cut", c.devices...)
			first, err := m.Prepare(once(), claim)
			must(t, err)
			require.Same(t, "cuts", c.cuts, w.cuts())
			uuids, ids := map[string]bool{}, map[string]bool{}
			for i, d := range first {
				name, err := kind.Parse(c.devices[i])
				must(t, err)
				if d.Name != name || !strings.HasPrefix(d.UUID, strings.ToUpper(string(d.Name.Kind))+"-") || uuids[d.UUID] || len(d.CDIDeviceIDs) != 1 || ids[d.CDIDeviceIDs[0]] {
					t.Errorf("device %+v, want %s with a UUID and a CDI ID of its own", d, c.devices[i])
				}
				uuids[d.UUID], ids[d.CDIDeviceIDs[0]] = true, true
			}
			// Preparing again, in this process or in another, changes nothing.
			restarted, report := w.restart(t.Context())
			if len(report.Verified) != 1 {
				t.Errorf("report %+v", report)
			}
			again, err := restarted.Prepare(once(), claim)
			must(t, err)
			require.Same(t, "prepared again", first, again)
			for range 2 {
				must(t, restarted.Unprepare(once(), claim.UID))
			}
			wantNothing(t, w.left(m))
		})
	}
}

func sevenOf(gpuName, profile string) []string {
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprintf("%s-mig-%s-%d", gpuName, profile, i))
	}
	return names
}

func TestContainersGetTheGPUAndTwoCapabilities(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	c := newClaim("cut", h100Other+"-mig-3g-40gb-4", h100+"-mig-1g-10gb-2")
	must(t, errOf(w.start().Prepare(once(), c)))
	spec := w.spec(c)
	st, err := w.sim.State()
	must(t, err)
	for _, index := range []int{0, 1} {
		in := st.GPUs[index].Instances[0]
		want := []string{fmt.Sprintf(`"/dev/nvidia%d"`, index)}
		for _, path := range []string{fmt.Sprintf("gi%d/access", in.ID), fmt.Sprintf("gi%d/ci%d/access", in.ID, in.Compute[0].ID)} {
			want = append(want, fmt.Sprintf(`"/dev/nvidia-caps/nvidia-cap%d"`, w.minor(index, path)))
		}
		for _, node := range want {
			if strings.Count(spec, `"path": `+node) != 1 {
				t.Errorf("GPU %d: no node %s in\n%s", index, node, spec)
			}
		}
	}
}

func TestOneMIGModeForAllClaimsOnAGPU(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	m := w.start()
	a, b := newClaim("a", h100+"-mig-1g-10gb-0"), newClaim("b", h100+"-mig-2g-20gb-2")
	for _, c := range []*resourceapi.ResourceClaim{a, b} {
		must(t, errOf(m.Prepare(once(), c)))
	}
	// The claim that switched the mode on ends first.
	must(t, m.Unprepare(once(), a.UID))
	require.Same(t, "cuts", "0 on: 2g.20gb@2\n", w.cuts())
	must(t, m.Unprepare(once(), b.UID))
	wantNothing(t, w.left(m))
	if _, err := m.Prepare(once(), newClaim("whole", h100)); err != nil {
		t.Errorf("the GPU is not whole again: %v", err)
	}
}

func TestAnAdministratorsMIGModeStaysOn(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	w.administrator("makes", 0, "3g.40gb", 4)
	w.scan()
	m, c := w.start(), newClaim("cut", h100+"-mig-1g-10gb-0")
	must(t, errOf(m.Prepare(once(), c)))
	must(t, m.Unprepare(once(), c.UID))
	require.Same(t, "left", "0 on: 3g.40gb@4\n", w.left(m))
	_, err := m.Prepare(once(), newClaim("whole", h100))
	require.Error(t, "a whole GPU in an administrator's MIG mode", err, gpu.ErrNotSupported, "an administrator has switched it to MIG mode; switch it back with nvidia-smi -i 0000:1b:00.0 -mig 0")
}

func TestMIGModeThatRequiresAReset(t *testing.T) {
	c := newClaim("cut", a100+"-mig-1g-10gb-0")
	t.Run("not allowed", func(t *testing.T) {
		w := newMIGWorld(t, t.TempDir(), "dgx-a100")
		m := w.start()
		require.Error(t, "error", errOf(m.Prepare(once(), c)), gpu.ErrNotSupported, "--mig-allow-reset")
		wantNothing(t, w.left(m))
	})
	t.Run("allowed, with a reboot in between", func(t *testing.T) {
		w := newMIGWorld(t, t.TempDir(), "dgx-a100")
		w.allowReset()
		m := w.start()
		must(t, errOf(m.Prepare(once(), c)))
		// The mode persists across the boot, and the agent still switches it off.
		w.reboot()
		require.Same(t, "after the reboot", "0 on:\n", w.cuts())
		m, report := w.restart(t.Context())
		if got := w.left(m); got != "" || len(report.Swept["EnsureMIGMode"]) != 1 {
			t.Errorf("%+v, left behind:\n%s", report, got)
		}
	})
	t.Run("on already", func(t *testing.T) {
		w := newMIGWorld(t, t.TempDir(), "dgx-a100")
		w.allowReset()
		w.administrator("makes", 0, "1g.10gb", 6)
		w.open()
		m := w.start()
		must(t, errOf(m.Prepare(once(), c)))
		must(t, m.Unprepare(once(), c.UID))
		require.Same(t, "left", "0 on: 1g.10gb@6\n", w.left(m))
	})
}

// An administrator switches on the MIG mode after the inventory was read. The GPU
// cannot be used as a whole then: processes would find no device.
func TestAMIGModeIsReadFromTheHardwareBeforeAWholeGPUIsPrepared(t *testing.T) {
	for name, c := range map[string]*resourceapi.ResourceClaim{
		"whole":      newClaim("whole", h100),
		"share":      pieces("share", piece{device: h100, memory: "2Gi"}),
		"time slice": pieces("slice", piece{device: h100 + "-ts"}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
			m := w.start()
			must(t, w.lib.SetMIGMode(t.Context(), gpu.PCIAddress{Bus: 0x1b}, true))
			_, err := m.Prepare(once(), c)
			require.Error(t, "error", err, gpu.ErrNotSupported, "an administrator has switched it to MIG mode; switch it back with nvidia-smi -i 0000:1b:00.0 -mig 0")
			require.Same(t, "left", "0 on:\n", w.left(m))
			must(t, w.lib.SetMIGMode(t.Context(), gpu.PCIAddress{Bus: 0x1b}, false))
			if _, err := m.Prepare(once(), c); err != nil {
				t.Errorf("when it is off again: %v", err)
			}
		})
	}
}

// An administrator has set a MIG mode that is pending until a reset. No claim applies
// or cancels it.
func TestAnAdministratorsPendingMIGModeIsLeftAlone(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-a100")
	w.allowReset()
	device, ret := w.sim.NVML().DeviceGetHandleByIndex(0)
	if ret != vendor.SUCCESS {
		t.Fatal(ret)
	}
	if _, ret := device.SetMigMode(vendor.DEVICE_MIG_ENABLE); ret != vendor.SUCCESS {
		t.Fatal(ret)
	}
	m := w.start()
	_, err := m.Prepare(once(), newClaim("cut", a100+"-mig-1g-10gb-0"))
	require.Error(t, "error", err, gpu.ErrNotSupported, "waits for a reset; see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/mig.md")
	whole := newClaim("whole", a100)
	if _, err := m.Prepare(once(), whole); err != nil {
		t.Errorf("the GPU as it is now: %v", err)
	}
	must(t, m.Unprepare(once(), whole.UID))
	m, _ = w.restart(t.Context())
	require.Same(t, "left", "0 off, on after a reset:\n", w.left(m))
}

// After a restart only the records distinguish a mode that claims switched on from an
// administrator's.
func TestTheMIGModesOfClaimsAreKnownAfterARestart(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	w.administrator("makes", 1, "3g.40gb", 4)
	w.scan()
	m := w.start()
	for _, device := range []string{h100 + "-mig-1g-10gb-0", h100Other + "-mig-1g-10gb-0"} {
		must(t, errOf(m.Prepare(once(), newClaim(device[4:6], device))))
	}
	m, _ = w.restart(t.Context())
	switched, err := m.SwitchedModes(t.Context())
	if diff := cmp.Diff(map[gpu.PCIAddress]bool{{Bus: 0x1b}: true}, switched); err != nil || diff != "" {
		t.Errorf("%v, switched (-want +got):\n%s", err, diff)
	}
	must(t, os.WriteFile(w.dir+"/modes/"+h100+".record", []byte("?"), 0o600))
	if switched, err := m.SwitchedModes(t.Context()); len(switched) > 0 || err != nil {
		t.Errorf("of a damaged record: %v, %v", switched, err)
	}
	w.reboot()
	if switched, err := w.start().SwitchedModes(t.Context()); len(switched) > 0 || err != nil {
		t.Errorf("after a reboot: %v, %v", switched, err)
	}
}

// On Hopper a MIG mode ends with the boot. A mode that is on after a reboot is an
// administrator's.
func TestAMIGModeAfterARebootIsAnAdministrators(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	must(t, errOf(w.start().Prepare(once(), newClaim("cut", h100+"-mig-1g-10gb-0"))))
	w.reboot()
	w.administrator("makes", 0, "1g.10gb", 0)
	m, _ := w.restart(t.Context())
	require.Same(t, "left", "0 on: 1g.10gb@0\n", w.left(m))
}

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
			says: []string{"1g.10gb@3 on GPU gpu-1b-00 at 0000:1b:00.0", "MIG instance 2g.20gb@2", "which this driver has not made"},
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
				must(t, errOf(m.Prepare(once(), newClaim("other", c.other))))
			}
			if c.before != nil {
				c.before(w)
			}
			refused := newClaim("refused", c.devices...)
			if c.change != nil {
				c.change(&refused.Status.Allocation.Devices)
			}
			wantRefused(t, m, w.left, refused, c.is, c.says...)
		})
	}
}

// A MIG mode that cannot be switched off does not block the end of a pod. Recovery
// switches it off as soon as possible.
func TestAMIGModeThatCannotBeSwitchedOffYet(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	m, c := w.start(), newClaim("cut", h100+"-mig-1g-10gb-0")
	must(t, errOf(m.Prepare(once(), c)))
	w.administrator("makes", 0, "1g.10gb", 6)
	if err := m.Unprepare(once(), c.UID); err != nil {
		t.Error(err)
	}
	require.Same(t, "left", "modes/gpu-1b-00.record\n0 on: 1g.10gb@6\n", w.left(m))
	whole := newClaim("whole", h100)
	require.Error(t, "a whole GPU", errOf(m.Prepare(once(), whole)), gpu.ErrInUse, "switch off the MIG mode of GPU gpu-1b-00 at 0000:1b:00.0: already in use by MIG instance 1g.10gb@6")
	w.scan() // as the controller does after that
	w.administrator("destroys", 0, "1g.10gb", 6)
	if _, err := m.Prepare(once(), whole); err != nil {
		t.Errorf("the whole GPU, which is free: %v", err)
	}
	if err := m.Unprepare(once(), whole.UID); err != nil {
		t.Error(err)
	}
	wantNothing(t, w.left(m))
}

func TestStaticPartitionsAreUsedAndNeverChanged(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	w.static = true
	w.administrator("makes", 0, "1g.10gb", 0)
	w.administrator("makes", 0, "2g.20gb", 4)
	w.scan()
	m, c := w.start(), newClaim("cut", h100+"-mig-2g-20gb-4", h100+"-mig-1g-10gb-0")
	devices, err := m.Prepare(once(), c)
	must(t, err)
	there := w.uuids(0)
	require.Same(t, "UUIDs", []string{there[1], there[0]}, []string{devices[0].UUID, devices[1].UUID})
	require.Error(t, "one that is not there", errOf(m.Prepare(once(), newClaim("missing", h100+"-mig-1g-10gb-1"))), gpu.ErrNotFound, "no administrator has made 1g.10gb@1 on GPU gpu-1b-00")
	w.restart(t.Context())
	// The partition stays an administrator's after the flag changes.
	w.static = false
	m, _ = w.restart(t.Context())
	w.administrator("destroys", 0, "1g.10gb", 0)
	require.Error(t, "one that is gone", errOf(m.Recover(t.Context())), gpu.ErrNotFound, "an administrator has to make it again")
	if err := m.Unprepare(once(), c.UID); err != nil {
		t.Error(err)
	}
	require.Same(t, "left", "0 on: 2g.20gb@4\n", w.left(m))
}

// After a driver update a claim can hold a MIG device whose profile the GPU no
// longer has. Its placement is unknown then.
func TestAMIGDeviceWithAnUnknownPlacementExcludesOthersOnItsGPU(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	m := w.start()
	must(t, errOf(m.Prepare(once(), newClaim("other", h100+"-mig-3g-40gb-0"))))
	name, err := kind.Parse(h100)
	must(t, err)
	w.mu.Lock()
	g := w.gpus[name.Address]
	g.MIG.Profiles = slices.DeleteFunc(slices.Clone(g.MIG.Profiles), func(p gpu.ProfileInfo) bool { return p.Profile.String() == "3g.40gb" })
	w.gpus[name.Address] = g
	w.mu.Unlock()
	for _, device := range []string{"-mig-1g-10gb-3", "-mig-1g-10gb-6"} {
		_, err = m.Prepare(once(), newClaim("refused", h100+device))
		if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "claim holds gpu-1b-00-mig-3g-40gb-0") {
			t.Errorf("%s: error %v, want it to name the device that another claim holds", device, err)
		}
	}
}
