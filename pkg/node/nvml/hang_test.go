// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	conformance "github.com/gpu-dra/gpu-dra-driver/test/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// forever is longer than any test.
const forever = nvmlsim.Duration(time.Hour)

func hang(t *testing.T, sim *nvmlsim.Sim, method string, index int) {
	t.Helper()
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: method, GPU: &index, Hang: forever}))
}

// expect waits for an event of that kind.
func (w watched) expect(t *testing.T, kind gpu.EventKind) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-w.events:
			if e.Kind == kind {
				return
			}
			t.Logf("meanwhile: %+v", e)
		case <-deadline:
			t.Fatalf("no event %s", kind)
		}
	}
}

func TestAGPUThatHangsFromTheStart(t *testing.T) {
	for _, method := range []string{"DeviceGetHandleByIndex", "DeviceGetPciInfo", "DeviceGetMemoryInfo", "DeviceGetMigMode", "DeviceGetNvLinkState"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			sim := simulate(t, "dgx1-v100")
			hang(t, sim, method, 3)
			l := nvml.New(sim.NVML())
			// No deadline: the bound is the Library's own.
			u := others(t, snapshot(t, l))
			require.Error(t, "the unreadable GPU", u.Err, gpu.ErrTimeout)
			must(t, l.Check(t.Context(), snapshot(t, l).GPUs[0].Address))

			w := watch(t, l)
			must(t, sim.ClearFaults())
			eventually(t, "an event reports that it answers", func() bool {
				w.expect(t, gpu.EventAnswer)
				return len(snapshot(t, l).GPUs) == 8
			})
			w.ends(t)
		})
	}
}

func TestSnapshotOfAllWaitsForASlowGPU(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	three := 3
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceGetMemoryInfo", GPU: &three, Hang: nvmlsim.Duration(3 * time.Second), Count: 1}))
	l := nvml.New(sim.NVML())
	node, err := l.SnapshotOfAll(t.Context())
	must(t, err)
	if len(node.GPUs) != 8 {
		t.Errorf("want all GPUs:\n%s", conformance.Describe(node))
	}
}

func TestSnapshotOfAllEndsWithItsContext(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	l := nvml.New(sim.NVML())
	hang(t, sim, "DeviceGetMemoryInfo", 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	node, err := l.SnapshotOfAll(ctx)
	must(t, err)
	others(t, node)
}

func TestAnOperationWaitsForNoOtherGPU(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx-a100")
	address := snapshot(t, nvml.New(sim.NVML())).GPUs[0].Address
	hang(t, sim, "DeviceGetHandleByIndex", 3)
	// Its first operation finds the GPU, as after a restart of the agent.
	l := nvml.New(sim.NVML())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := l.MIG(ctx, address); err != nil {
		t.Error(err)
	}
}

func TestACallForTheNodeThatHangsStopsNoGPU(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx-a100")
	l := nvml.New(sim.NVML())
	before := snapshot(t, l)
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceGetCount", Hang: forever}))
	for range 2 {
		if node := snapshot(t, l); len(node.GPUs) != 8 || node.DriverVersion != before.DriverVersion {
			t.Errorf("want the node as it was:\n%s", conformance.Describe(node))
		}
	}
	if _, err := l.MIG(t.Context(), before.GPUs[0].Address); err != nil {
		t.Error(err)
	}
	if version, err := l.DriverVersion(t.Context()); err != nil || version != before.DriverVersion {
		t.Errorf("driver version %q, %v, want %q", version, err, before.DriverVersion)
	}
}

func TestAGPUThatStopsAnsweringInAnOperationIsReported(t *testing.T) {
	t.Parallel()
	sim := simulate(t, "dgx1-v100")
	l := nvml.New(sim.NVML())
	address := snapshot(t, l).GPUs[3].Address
	w := watch(t, l)
	hang(t, sim, "DeviceGetMemoryInfo", 3)
	require.Error(t, "check", l.Check(t.Context(), address), gpu.ErrTimeout)
	w.expect(t, gpu.EventAnswer)
	others(t, snapshot(t, l))
	must(t, sim.ClearFaults())
	eventually(t, "an event reports that it answers", func() bool {
		w.expect(t, gpu.EventAnswer)
		return len(snapshot(t, l).GPUs) == 8
	})
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name    string
		happens func(*testing.T, *nvmlsim.Sim)
		want    error
	}{
		{"nothing", func(*testing.T, *nvmlsim.Sim) {}, nil},
		{"lost without an event", func(t *testing.T, s *nvmlsim.Sim) {
			fail(t, s, "DeviceGetMemoryInfo", 3, gonvml.ERROR_GPU_IS_LOST)
		}, gpu.ErrLost},
		{"off the bus", func(t *testing.T, s *nvmlsim.Sim) { must(t, s.LoseGPU(3)) }, gpu.ErrLost},
		{"the driver is unloaded", func(t *testing.T, s *nvmlsim.Sim) { must(t, s.UnloadDriver()) }, gpu.ErrNotReady},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := simulate(t, "dgx1-v100")
			l := nvml.New(sim.NVML())
			address := snapshot(t, l).GPUs[3].Address
			c.happens(t, sim)
			require.Error(t, "Check", l.Check(t.Context(), address), c.want)
		})
	}
	t.Run("an answer that means nothing", func(t *testing.T) {
		sim := simulate(t, "dgx1-v100")
		l := nvml.New(sim.NVML())
		fail(t, sim, "DeviceGetMemoryInfo", 3, gonvml.ERROR_UNKNOWN)
		if err := l.Check(t.Context(), gpu.PCIAddress{Bus: 0x0b}); err == nil {
			t.Error("the GPU counts as one that answers")
		}
	})
	t.Run("before a scan", func(t *testing.T) {
		l := nvml.New(simulate(t, "dgx1-v100").NVML())
		must(t, l.Check(t.Context(), gpu.PCIAddress{Bus: 0x0b}))
		require.Error(t, "a GPU that the node does not have", l.Check(t.Context(), gpu.PCIAddress{Bus: 0xee}), gpu.ErrNotFound)
	})
}

// Each method with a context returns when that ends, even if the driver hangs. Add
// new methods to this table.
func TestEveryMethodReturnsWhenItsContextEnds(t *testing.T) {
	address, profile := gpu.PCIAddress{Bus: 0x07}, gpu.Profile{Slices: 1, MemoryGB: 5}
	calls := map[string]func(context.Context, *nvml.Library) error{
		"CancelPendingMIGMode": func(ctx context.Context, l *nvml.Library) error { return l.CancelPendingMIGMode(ctx, address) },
		"MIGMode":              func(ctx context.Context, l *nvml.Library) error { _, _, err := l.MIGMode(ctx, address); return err },
		"Check":                func(ctx context.Context, l *nvml.Library) error { return l.Check(ctx, address) },
		"Clocks":               func(ctx context.Context, l *nvml.Library) error { _, err := l.Clocks(ctx, address); return err },
		"ComputeMode":          func(ctx context.Context, l *nvml.Library) error { _, err := l.ComputeMode(ctx, address); return err },
		"SetComputeMode": func(ctx context.Context, l *nvml.Library) error {
			return l.SetComputeMode(ctx, address, gpu.ComputeModeDefault)
		},
		"CreatePartition": func(ctx context.Context, l *nvml.Library) error {
			_, err := l.CreatePartition(ctx, address, profile, 0)
			return err
		},
		"DestroyPartition": func(ctx context.Context, l *nvml.Library) error { return l.DestroyPartition(ctx, address, profile, 0) },
		"DriverVersion":    func(ctx context.Context, l *nvml.Library) error { _, err := l.DriverVersion(ctx); return err },
		"Gauges":           func(ctx context.Context, l *nvml.Library) error { _, err := l.Gauges(ctx, address); return err },
		"MIG":              func(ctx context.Context, l *nvml.Library) error { _, err := l.MIG(ctx, address); return err },
		"MemoryLimit": func(ctx context.Context, l *nvml.Library) error {
			_, err := l.MemoryLimit(ctx, address, "/")
			return err
		},
		"SetMemoryLimit": func(ctx context.Context, l *nvml.Library) error { return l.SetMemoryLimit(ctx, address, "/", 0) },
		"Power":          func(ctx context.Context, l *nvml.Library) error { _, err := l.Power(ctx, address); return err },
		"Processes":      func(ctx context.Context, l *nvml.Library) error { _, err := l.Processes(ctx, address); return err },
		"SMUse": func(ctx context.Context, l *nvml.Library) error {
			_, err := l.SMUse(ctx, address, time.Time{})
			return err
		},
		"SetMIGMode":    func(ctx context.Context, l *nvml.Library) error { return l.SetMIGMode(ctx, address, true) },
		"Snapshot":      func(ctx context.Context, l *nvml.Library) error { _, err := l.Snapshot(ctx); return err },
		"SnapshotOfAll": func(ctx context.Context, l *nvml.Library) error { _, err := l.SnapshotOfAll(ctx); return err },
		"Watch":         func(ctx context.Context, l *nvml.Library) error { return l.Watch(ctx, func(gpu.Event) {}) },
	}
	library := reflect.TypeFor[*nvml.Library]()
	for i := range library.NumMethod() {
		m := library.Method(i)
		if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() && calls[m.Name] == nil {
			t.Errorf("Library.%s is not in the table of this test", m.Name)
		}
	}
	everything := nvmlsim.CallFault{Method: nvmlsim.EveryMethod, Hang: forever}
	for _, method := range slices.Sorted(maps.Keys(calls)) {
		for name, started := range map[string]bool{"from the start": false, "later": true} {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				sim := limiting(t, "dgx-a100", nvmlsim.MemoryLimitsDmem)
				l := nvml.New(sim.NVML())
				if started {
					snapshot(t, l)
				}
				must(t, sim.FailCalls(everything))
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- calls[method](ctx, l) }()
				select {
				case err := <-done:
					if err != nil && !errors.Is(err, gpu.ErrTimeout) {
						t.Errorf("error %v, want %v", err, gpu.ErrTimeout)
					}
				case <-time.After(30 * time.Second):
					t.Error("it does not return")
				}
				// Nor does closing the library wait for what hangs.
				if err := l.Close(); err != nil && !errors.Is(err, gpu.ErrInUse) && !errors.Is(err, gpu.ErrTimeout) {
					t.Errorf("Close: %v", err)
				}
			})
		}
	}
}
