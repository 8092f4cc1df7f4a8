// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// first returns a library that has read the node, and the address of the first
// GPU.
func first(t *testing.T, sim *nvmlsim.Sim, options ...nvml.Option) (*nvml.Library, gpu.PCIAddress) {
	t.Helper()
	l := nvml.New(sim.NVML(), options...)
	return l, snapshot(t, l).GPUs[0].Address
}

func profile(t *testing.T, s string) gpu.Profile {
	t.Helper()
	p, err := gpu.ParseProfile(s)
	must(t, err)
	return p
}

// partitions renders mode and partitions of a GPU.
func partitions(t *testing.T, l *nvml.Library, a gpu.PCIAddress) string {
	t.Helper()
	mig, err := l.MIG(t.Context(), a)
	must(t, err)
	words := []string{"off"}
	if mig.Enabled {
		words[0] = "on"
	}
	if mig.PendingEnabled != mig.Enabled {
		words = append(words, "pending")
	}
	for _, p := range mig.Partitions {
		words = append(words, fmt.Sprintf("%s@%d", p.Profile, p.Placement.Start))
		if p.UUID == "" {
			words = append(words, "(empty)")
		}
	}
	return strings.Join(words, " ")
}

func TestEveryPartitionOfEachModelCanBeMadeAndDestroyed(t *testing.T) {
	for _, model := range []string{"a30-bridge", "dgx-a100", "dgx-b200", "dgx-h100", "gb200", "hgx-h200", "rtx-pro-6000"} {
		t.Run(model, func(t *testing.T) {
			sim := simulate(t, model)
			l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error { return sim.ResetGPU(0) }))
			must(t, l.SetMIGMode(t.Context(), a, true))
			mig, err := l.MIG(t.Context(), a)
			must(t, err)
			for _, info := range mig.Profiles {
				for _, place := range info.Placements {
					made, err := l.CreatePartition(t.Context(), a, info.Profile, place.Start)
					must(t, err)
					again, err := l.CreatePartition(t.Context(), a, info.Profile, place.Start)
					must(t, err)
					mig, err := l.MIG(t.Context(), a)
					must(t, err)
					if diff := cmp.Diff([]gpu.Partition{made}, mig.Partitions); diff != "" || made != again || made.Placement != place || made.UUID == "" {
						t.Errorf("%s@%d, made again %+v (-made +found):\n%s", info.Profile, place.Start, again, diff)
					}
					for range 2 {
						must(t, l.DestroyPartition(t.Context(), a, info.Profile, place.Start))
					}
					if got := partitions(t, l, a); got != "on" {
						t.Errorf("%s@%d destroyed: %s", info.Profile, place.Start, got)
					}
				}
			}
			must(t, l.SetMIGMode(t.Context(), a, false))
			if got := partitions(t, l, a); got != "off" {
				t.Errorf("at the end: %s", got)
			}
		})
	}
}

func TestAFailedComputeInstanceLeavesNoGPUInstance(t *testing.T) {
	for _, method := range []string{"GpuInstanceCreateComputeInstance", "ComputeInstanceGetInfo", "DeviceGetUUID"} {
		t.Run(method, func(t *testing.T) {
			sim := simulate(t, "dgx-h100")
			l, a := first(t, sim)
			must(t, l.SetMIGMode(t.Context(), a, true))
			fail(t, sim, method, 0, gonvml.ERROR_INSUFFICIENT_RESOURCES)
			_, err := l.CreatePartition(t.Context(), a, profile(t, "2g.20gb"), 2)
			require.Error(t, "CreatePartition", err, gpu.ErrNoCapacity)
			must(t, sim.ClearFaults())
			if got := partitions(t, l, a); got != "on" {
				t.Errorf("left behind: %s", got)
			}
		})
	}
}

func TestAnOperationFindsItsGPUByItself(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l, a := nvml.New(sim.NVML()), gpu.PCIAddress{Bus: 0xdf}
	must(t, l.SetMIGMode(t.Context(), a, true))
	_, err := l.CreatePartition(t.Context(), a, profile(t, "1g.10gb"), 0)
	must(t, err)
	l = nvml.New(sim.NVML())
	must(t, l.DestroyPartition(t.Context(), a, profile(t, "1g.10gb"), 0))
	if got := partitions(t, l, a); got != "on" {
		t.Errorf("left behind: %s", got)
	}

	// One that does not even return its address may be the one.
	fail(t, sim, "DeviceGetPciInfo", 7, gonvml.ERROR_UNKNOWN)
	if err := nvml.New(sim.NVML()).DestroyPartition(t.Context(), a, profile(t, "1g.10gb"), 0); err == nil || errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("error %v, want one that does not say that there is no such GPU", err)
	}
}

func TestPartitionsThatCannotBeMade(t *testing.T) {
	sim := simulate(t, "dgx-h100")
	l, a := first(t, sim)
	must(t, l.SetMIGMode(t.Context(), a, true))
	made, err := l.CreatePartition(t.Context(), a, profile(t, "3g.40gb"), 4)
	must(t, err)
	for name, c := range map[string]struct {
		profile string
		start   int
		want    error
	}{
		"overlapping":              {"1g.10gb", 5, gpu.ErrNoCapacity},
		"a placement it has not":   {"2g.20gb", 1, gpu.ErrNotFound},
		"a profile it has not":     {"1g.5gb", 0, gpu.ErrNotFound},
		"a suffix that it has not": {"1g.10gb+gfx", 0, gpu.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.CreatePartition(t.Context(), a, profile(t, c.profile), c.start)
			require.Error(t, "CreatePartition", err, c.want, fmt.Sprintf("create %s@%d on GPU at 0000:1b:00.0", c.profile, c.start))
		})
	}
	t.Run("destroyed while in use", func(t *testing.T) {
		must(t, sim.AddProcess(0, nvmlsim.Process{PID: 7, Device: made.UUID}))
		require.Error(t, "DestroyPartition", l.DestroyPartition(t.Context(), a, profile(t, "3g.40gb"), 4), gpu.ErrInUse)
	})
	t.Run("a GPU that was never read", func(t *testing.T) {
		_, err := l.MIG(t.Context(), gpu.PCIAddress{Bus: 0xee})
		require.Error(t, "MIG", err, gpu.ErrNotFound)
	})
}

func TestMIGModeThatCannotBeSwitched(t *testing.T) {
	t.Run("a process uses the GPU", func(t *testing.T) {
		sim := simulate(t, "dgx-h100")
		l, a := first(t, sim)
		must(t, sim.AddProcess(0, nvmlsim.Process{PID: 4711}))
		err := l.SetMIGMode(t.Context(), a, true)
		require.Error(t, "SetMIGMode", err, gpu.ErrInUse, "switch on the MIG mode of GPU at 0000:1b:00.0", "stop what uses the GPU: process 4711")
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("left behind: %s", got)
		}
		must(t, sim.RemoveProcess(4711))
		must(t, l.SetMIGMode(t.Context(), a, true))
	})
	t.Run("there are partitions", func(t *testing.T) {
		l, a := first(t, simulate(t, "dgx-h100"))
		must(t, l.SetMIGMode(t.Context(), a, true))
		_, err := l.CreatePartition(t.Context(), a, profile(t, "1g.10gb"), 0)
		must(t, err)
		require.Error(t, "SetMIGMode", l.SetMIGMode(t.Context(), a, false), gpu.ErrInUse)
		if got := partitions(t, l, a); got != "on 1g.10gb@0" {
			t.Errorf("left behind: %s", got)
		}
	})
	t.Run("it takes a reset that is not allowed", func(t *testing.T) {
		l, a := first(t, simulate(t, "dgx-a100"))
		err := l.SetMIGMode(t.Context(), a, true)
		require.Error(t, "SetMIGMode", err, gpu.ErrNotSupported, "--mig-allow-reset")
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("left behind: %s", got)
		}
	})
	t.Run("it takes a reset of a GPU in use", func(t *testing.T) {
		sim := simulate(t, "dgx-a100")
		l, a := first(t, sim, nvml.AllowReset(func(context.Context, gpu.PCIAddress) error { t.Error("reset a GPU in use"); return nil }))
		must(t, sim.AddProcess(0, nvmlsim.Process{PID: 4711}))
		require.Error(t, "SetMIGMode", l.SetMIGMode(t.Context(), a, true), gpu.ErrInUse)
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("left behind: %s", got)
		}
	})
	t.Run("the reset fails", func(t *testing.T) {
		l, a := first(t, simulate(t, "dgx-a100"), nvml.AllowReset(func(context.Context, gpu.PCIAddress) error { return gpu.ErrInUse }))
		require.Error(t, "SetMIGMode", l.SetMIGMode(t.Context(), a, true), gpu.ErrInUse)
		if got := partitions(t, l, a); got != "off" {
			t.Errorf("left behind: %s", got)
		}
	})
	t.Run("the GPU has no MIG", func(t *testing.T) {
		l, a := first(t, simulate(t, "t4"))
		require.Error(t, "SetMIGMode", l.SetMIGMode(t.Context(), a, true), gpu.ErrNotSupported)
	})
}
