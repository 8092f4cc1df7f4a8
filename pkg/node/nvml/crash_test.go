// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// died is how a simulated process ends in the middle of an operation.
type died struct{}

// dying runs a call of a process that dies in it.
func dying(t *testing.T, call func() error) {
	t.Helper()
	defer func() {
		if r := recover(); r != (died{}) {
			t.Fatalf("the process did not die: %v", r)
		}
	}()
	t.Fatalf("the process did not die: %v", call())
}

// diesBeforeTheReset leaves the MIG mode of an A100 pending.
func diesBeforeTheReset(t *testing.T, sim *nvmlsim.Sim) (*nvml.Library, gpu.PCIAddress) {
	t.Helper()
	l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error { panic(died{}) }))
	dying(t, func() error { return l.SetMIGMode(t.Context(), a, true) })
	return first(t, sim)
}

func TestADeathBetweenMIGModeAndResetLeavesTheModePending(t *testing.T) {
	sim := simulate(t, "dgx-a100")
	l, a := diesBeforeTheReset(t, sim)
	if got := partitions(t, l, a); got != "off pending" {
		t.Errorf("MIG %s, want it pending", got)
	}
	// That is the danger: the next boot makes it real.
	must(t, sim.Reboot())
	if got := partitions(t, l, a); got != "on" {
		t.Errorf("MIG %s after a reboot, want on", got)
	}
}

func TestAPendingMIGModeIsTakenBack(t *testing.T) {
	for name, happens := range map[string]func(*nvmlsim.Sim) error{
		"reset":  func(s *nvmlsim.Sim) error { return s.ResetGPU(0) },
		"reboot": func(s *nvmlsim.Sim) error { return s.Reboot() },
	} {
		t.Run(name, func(t *testing.T) {
			sim := simulate(t, "dgx-a100")
			l, a := diesBeforeTheReset(t, sim)
			for range 2 {
				must(t, l.CancelPendingMIGMode(t.Context(), a))
			}
			if got := partitions(t, l, a); got != "off" {
				t.Errorf("MIG %s, want off", got)
			}
			must(t, happens(sim))
			if got := partitions(t, l, a); got != "off" {
				t.Errorf("MIG %s, want off", got)
			}
		})
	}
	t.Run("switching it off takes it back too", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		l, a := diesBeforeTheReset(t, sim)
		must(t, l.SetMIGMode(t.Context(), a, false))
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("MIG %s, want off", got)
		}
	})
	t.Run("a mode that is on stays on", func(t *testing.T) {
		l, a := first(t, simulate(t, "dgx-h100"))
		must(t, l.SetMIGMode(t.Context(), a, true))
		must(t, l.CancelPendingMIGMode(t.Context(), a))
		if got := partitions(t, l, a); got != "on" {
			t.Errorf("MIG %s, want on", got)
		}
	})
	t.Run("there is no MIG", func(t *testing.T) {
		l, a := first(t, simulate(t, "t4"))
		must(t, l.CancelPendingMIGMode(t.Context(), a))
	})
	t.Run("the GPU is lost", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		l, a := first(t, sim)
		must(t, sim.LoseGPU(0))
		require.Error(t, "CancelPendingMIGMode", l.CancelPendingMIGMode(t.Context(), a), gpu.ErrLost)
	})
}

// stubborn is a driver that keeps a pending MIG mode.
type stubborn struct{ gonvml.Interface }

type stubbornDevice struct{ gonvml.Device }

func (l stubborn) DeviceGetHandleByPciBusId(id string) (gonvml.Device, gonvml.Return) { //nolint:revive // the name is go-nvml's
	d, ret := l.Interface.DeviceGetHandleByPciBusId(id)
	return stubbornDevice{d}, ret
}

func (stubbornDevice) SetMigMode(int) (gonvml.Return, gonvml.Return) {
	return gonvml.SUCCESS, gonvml.SUCCESS
}

func TestAPendingMIGModeThatStaysIsAnError(t *testing.T) {
	sim := simulate(t, "dgx-a100")
	_, a := diesBeforeTheReset(t, sim)
	require.Error(t, "CancelPendingMIGMode", nvml.New(stubborn{sim.NVML()}).CancelPendingMIGMode(t.Context(), a), gpu.ErrNotSupported)
}

func TestAMIGModeWhoseCallerHasGivenUpDoesNotStayPending(t *testing.T) {
	t.Run("the driver hangs while it is set", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error {
			t.Error("reset a GPU after its caller gave up")
			return nil
		}))
		must(t, sim.FailCalls(nvmlsim.CallFault{Method: "DeviceSetMigMode", Count: 1, Hang: nvmlsim.Duration(time.Hour)}))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Error(t, "SetMIGMode", l.SetMIGMode(ctx, a, true), gpu.ErrTimeout)
		must(t, sim.ClearFaults())
		eventually(t, "the call to return", func() bool {
			_, err := l.MIG(t.Context(), a)
			return err == nil
		})
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("MIG %s, want off", got)
		}
	})
	t.Run("the reset takes too long", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		ctx, cancel := context.WithCancel(t.Context())
		l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error { cancel(); return gpu.ErrTimeout }))
		require.Error(t, "SetMIGMode", l.SetMIGMode(ctx, a, true), gpu.ErrTimeout)
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("MIG %s, want off", got)
		}
	})
	t.Run("and the driver hangs after the reset", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		ctx, cancel := context.WithCancel(t.Context())
		l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error {
			cancel()
			return errors.Join(gpu.ErrTimeout, sim.HangGPU(0))
		}))
		// It returns at all, long before the hang ends.
		require.Error(t, "SetMIGMode", l.SetMIGMode(ctx, a, true), gpu.ErrTimeout)
		// What hangs writes to the simulated node until it has returned.
		must(t, sim.ClearFaults())
		eventually(t, "the call to return", func() bool {
			_, err := l.MIG(t.Context(), a)
			return err == nil
		})
	})
}

func TestAHalfMadePartitionIsFoundAndCanBeDestroyedOrFinished(t *testing.T) {
	halfMade := func(t *testing.T) (*nvml.Library, gpu.PCIAddress, gpu.Profile) {
		t.Helper()
		sim := simulate(t, "dgx-h100")
		l, a := first(t, sim)
		must(t, l.SetMIGMode(t.Context(), a, true))
		p := profile(t, "2g.20gb")
		// Neither the second step nor the undo of the first succeeds.
		fail(t, sim, "GpuInstanceCreateComputeInstance", 0, gonvml.ERROR_INSUFFICIENT_RESOURCES)
		fail(t, sim, "GpuInstanceDestroy", 0, gonvml.ERROR_UNKNOWN)
		_, err := l.CreatePartition(t.Context(), a, p, 2)
		require.Error(t, "CreatePartition", err, gpu.ErrNoCapacity)
		must(t, sim.ClearFaults())
		if got := partitions(t, l, a); got != "on 2g.20gb@2 (empty)" {
			t.Errorf("left behind: %s", got)
		}
		return l, a, p
	}
	t.Run("destroyed", func(t *testing.T) {
		l, a, p := halfMade(t)
		must(t, l.DestroyPartition(t.Context(), a, p, 2))
		if got := partitions(t, l, a); got != "on" {
			t.Errorf("left behind: %s", got)
		}
	})
	t.Run("finished", func(t *testing.T) {
		l, a, p := halfMade(t)
		made, err := l.CreatePartition(t.Context(), a, p, 2)
		must(t, err)
		if made.UUID == "" || partitions(t, l, a) != "on 2g.20gb@2" {
			t.Errorf("made %+v: %s", made, partitions(t, l, a))
		}
	})
}
