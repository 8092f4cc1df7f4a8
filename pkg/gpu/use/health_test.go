// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

func TestFabricStatesThatKeepClaimsAway(t *testing.T) {
	for state, want := range map[gpu.FabricState]string{
		"":                   "",
		gpu.FabricCompleted:  "",
		gpu.FabricNotStarted: "fabric-not-ready",
		gpu.FabricInProgress: "fabric-not-ready",
		gpu.FabricFailed:     "fabric-failed",
		"of a newer driver":  "fabric-not-ready",
	} {
		value := use.Fabric(state)
		if value != want {
			t.Errorf("Fabric(%q) = %q, want the taint value %q", state, value, want)
		}
		if value != "" && !cause.Known(v1alpha1.TaintUnhealthy, value) {
			t.Errorf("the table of causes has no row for %q", value)
		}
	}
}

func TestEveryRecoveryActionHasACause(t *testing.T) {
	for _, action := range []gpu.RecoveryAction{
		gpu.RecoveryGPUReset, gpu.RecoveryNodeReboot, gpu.RecoveryDrainP2P, gpu.RecoveryDrainAndReset,
		gpu.RecoveryIMEXDomain, gpu.RecoveryBusReset, gpu.RecoverySystemReboot,
	} {
		if value := use.Recovery(action); !cause.Known(v1alpha1.TaintUnhealthy, value) {
			t.Errorf("the table of causes has no row for %q", value)
		}
	}
}

func TestSilenceHasACause(t *testing.T) {
	for want, err := range map[string]error{
		"timeout": gpu.ErrTimeout, "driver-not-ready": gpu.ErrNotReady, "permission-denied": gpu.ErrPermission, "lost": gpu.ErrLost,
	} {
		if got := use.Silence(fmt.Errorf("read the GPU: %w", err)); got != want {
			t.Errorf("Silence(%v) = %q, want %q", err, got, want)
		}
		if !cause.Known(v1alpha1.TaintUnhealthy, want) {
			t.Errorf("the table of causes has no row for %q", want)
		}
	}
}

func TestGPUsThatCanBePartitioned(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*gpu.GPU)
		allowReset bool
		says       string // nothing if the GPU can be partitioned
	}{
		"a GPU with MIG":                                      {func(*gpu.GPU) {}, false, ""},
		"one without MIG":                                     {func(g *gpu.GPU) { g.MIG.Capable = false }, false, "it has no MIG"},
		"one without profiles":                                {func(g *gpu.GPU) { g.MIG.Profiles = nil }, false, "switch it on with nvidia-smi -mig 1"},
		"one without profiles in MIG mode":                    {func(g *gpu.GPU) { g.MIG.Profiles, g.MIG.Enabled = nil, true }, false, "its MIG mode is on"},
		"one without profiles before a reset":                 {func(g *gpu.GPU) { g.MIG.Profiles, g.MIG.PendingEnabled = nil, true }, true, "its MIG mode waits for a reset"},
		"one whose mode waits for a reset":                    {func(g *gpu.GPU) { g.ComputeCapability.Major, g.MIG.PendingEnabled = 8, true }, false, "its MIG mode waits for a reset"},
		"one whose mode waits for a reset that claims may do": {func(g *gpu.GPU) { g.ComputeCapability.Major, g.MIG.PendingEnabled = 8, true }, true, ""},
		"one that needs a reset":                              {func(g *gpu.GPU) { g.ComputeCapability.Major = 8 }, false, "allow resets with --mig-allow-reset"},
		"one that may be reset":                               {func(g *gpu.GPU) { g.ComputeCapability.Major = 8 }, true, ""},
		"one that needs none, as its mode is on":              {func(g *gpu.GPU) { g.ComputeCapability.Major, g.MIG.Enabled = 8, true }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := healthy()
			c.change(&g)
			err := use.CheckPartitioning(g, c.allowReset)
			if err != nil && strings.Contains(err.Error(), "switch it on") && (g.MIG.Enabled || g.MIG.PendingEnabled) {
				t.Errorf("%v: its mode is on, or waits for a reset", err)
			}
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("CheckPartitioning = %v, want an error that says %q", err, c.says)
			}
		})
	}
}
