// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// dgxH100 returns one simulated node for many worlds. Each world starts from the same
// state.
func dgxH100(t testing.TB) *nvmlsim.Sim { return newSim(t, "dgx-h100") }

func newSim(t testing.TB, model string) *nvmlsim.Sim {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	sim, err := nvmlsim.Create(t.TempDir(), m)
	must(t, err)
	return sim
}

// A call hangs while partitions are created or destroyed, and the caller times out.
// Once the driver answers again, nothing is left behind.
func TestACallOfPartitioningThatHangs(t *testing.T) {
	c := newClaim("unlucky", h100+"-mig-1g-10gb-0")
	for _, method := range []string{"DeviceSetMigMode", "DeviceCreateGpuInstanceWithPlacement", "GpuInstanceCreateComputeInstance", "ComputeInstanceDestroy", "GpuInstanceDestroy"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			parts := w.partitioning
			w.partitioning = func(disk store.FS) *ports.Partitioning {
				p := parts(disk)
				p.MIG = w.lib // which heeds contexts
				return p
			}
			m := w.start()
			if strings.Contains(method, "Destroy") {
				must(t, errOf(m.Prepare(t.Context(), c)))
			}
			must(t, w.sim.FailCalls(nvmlsim.CallFault{Method: method, Count: 1, Hang: nvmlsim.Duration(time.Hour)}))
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var err error
			if strings.Contains(method, "Destroy") {
				err = m.Unprepare(ctx, c.UID)
			} else {
				_, err = m.Prepare(ctx, c)
			}
			require.Error(t, "error", err, gpu.ErrTimeout)
			if _, err := m.Prepare(once(), newClaim("thief", h100)); err == nil {
				t.Error("the GPU was given away in an unknown state")
			}
			must(t, w.sim.ClearFaults())
			// The call that hung may return a moment later.
			for err = m.Unprepare(t.Context(), c.UID); errors.Is(err, gpu.ErrTimeout); err = m.Unprepare(t.Context(), c.UID) {
				<-time.After(10 * time.Millisecond)
			}
			must(t, err)
			if _, err := m.Recover(t.Context()); err != nil {
				t.Error(err)
			}
			wantNothing(t, w.left(m))
		})
	}
}

// A claim with devices of several GPUs must release those that are well, and its pod must end.
func TestAClaimWithAMIGDeviceOfALostGPUIsUnprepared(t *testing.T) {
	for name, after := range map[string]func(*migWorld) error{
		"a reset": func(w *migWorld) error { return w.sim.ResetGPU(0) },
		// A GPU that was plugged in again, or one that was not lost at all.
		"nothing else": func(w *migWorld) error { return w.sim.ClearFaults() },
	} {
		w := newMIGWorld(t, t.TempDir(), "dgx-h100")
		m, c := w.start(), newClaim("c", h100+"-mig-1g-10gb-0", "gpu-43-00")
		must(t, errOf(m.Prepare(t.Context(), c)))
		must(t, w.sim.LoseGPU(0))
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Errorf("before %s: %v", name, err)
		}
		must(t, errOf(m.Prepare(t.Context(), newClaim("next", "gpu-43-00"))))
		must(t, m.Unprepare(t.Context(), "uid-next"))
		must(t, after(w))
		must(t, errOf(m.Recover(t.Context())))
		wantNothing(t, w.left(m))
	}
}

func TestRecoverMakesALostPartition(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	c := newClaim("cut", h100+"-mig-1g-10gb-1", h100+"-mig-1g-10gb-5")
	must(t, errOf(w.start().Prepare(once(), c)))
	for name, lose := range map[string]func(){
		"a partition":       func() { w.administrator("destroys", 0, "1g.10gb", 5) },
		"all, with a reset": func() { must(t, w.sim.ResetGPU(0)) },
		"all, and the mode": func() {
			w.administrator("destroys", 0, "1g.10gb", 1)
			w.administrator("destroys", 0, "1g.10gb", 5)
			must(t, w.lib.SetMIGMode(context.Background(), gpu.PCIAddress{Bus: 0x1b}, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			lose()
			m, _ := w.restart(t.Context())
			require.Same(t, "cuts", "0 on: 1g.10gb@1 1g.10gb@5\n", w.cuts())
			devices, err := m.Prepare(once(), c)
			must(t, err)
			var uuids []string
			for _, d := range devices {
				uuids = append(uuids, d.UUID)
			}
			require.Same(t, "UUIDs of the claim's devices", w.uuids(0), uuids)
		})
	}
}

func TestAnotherInThePlaceOfALostPartitionIsNotTouched(t *testing.T) {
	for name, another := range map[string]string{"of the same profile": "1g.10gb", "of another profile": "2g.20gb"} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			c := newClaim("cut", h100+"-mig-1g-10gb-4")
			must(t, errOf(w.start().Prepare(once(), c)))
			w.administrator("destroys", 0, "1g.10gb", 4)
			w.administrator("makes", 0, another, 4)
			w.faults = &faults{}
			m := w.start()
			for op, act := range map[string]func() error{
				"recover": func() error { _, err := m.Recover(t.Context()); return err },
				"prepare": func() error { _, err := m.Prepare(once(), c); return err },
			} {
				if err := act(); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("MIG instance %s@4", another)) {
					t.Errorf("%s: %v, want %v that names the other", op, err, gpu.ErrInUse)
				}
			}
			// The other may have the numbers of the one that is gone.
			spec, err := os.ReadFile(w.specPath(c))
			if err != nil || strings.Contains(string(spec), "nvidia-caps") {
				t.Errorf("%v, a container can start with\n%s", err, spec)
			}
			if err := m.Unprepare(once(), c.UID); err != nil {
				t.Error(err)
			}
			// The mode must still be switched off once the other partition is
			// gone.
			require.Same(t, "left", "modes/gpu-1b-00.record\n0 on: "+another+"@4\n", w.left(m))
			w.administrator("destroys", 0, another, 4)
			report, err := m.Recover(t.Context())
			if err != nil || len(report.Swept["EnsureMIGMode"]) != 1 || w.left(m) != "" {
				t.Errorf("%+v, %v, left:\n%s", report, err, w.left(m))
			}
		})
	}
}
