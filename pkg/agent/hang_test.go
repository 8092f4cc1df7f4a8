// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
)

func TestAGPUThatHangsHoldsUpNoClaimForAnother(t *testing.T) {
	t.Parallel()
	bad, good := claimFor("bad", "gpu-43-00"), claimFor("good", "gpu-1b-00")
	n := newNode(t, bad, good)
	a := n.start(t)
	n.published(t)
	sim := n.sim(t)
	if err := sim.HangGPU(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.ClearFaults() })

	// A claim for the GPU that hangs waits, and holds the GPU's lock.
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = a.kubelet.Prepare(ctx, bad)
	}()
	t.Cleanup(func() {
		cancel()
		<-waits
	})
	limited, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	results, err := a.kubelet.Prepare(limited, good)
	if err != nil || results["uid-good"].Error != "" {
		t.Fatalf("prepare: %v, %v", results, err)
	}
	if err := a.kubelet.Unprepare(limited, good); err != nil {
		t.Errorf("unprepare: %v", err)
	}
}

func TestAGPUWithoutADeviceNodeIsTaintedUntilTheNodeExists(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t)
	n.published(t)
	node, devices := filepath.Join(n.SimState, "dev/nvidia-uvm"), filepath.Join(n.SimState, "proc/devices")
	loaded, err := os.ReadFile(devices)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(node), os.WriteFile(devices, []byte("195 nvidia\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	scan := func() error { a.known.inventory.RequestScan(); return nil }
	for _, name := range []string{"gpu-1b-00", "gpu-df-00"} {
		a.device(t, name, func(d state.DeviceHealth) bool {
			return d.Cause == "device-node-missing" && strings.Contains(d.Message, "the kernel module nvidia-uvm is not loaded")
		}, scan)
	}
	n.waitTaint(t, "gpu-1b-00", "device-node-missing")
	if os.Geteuid() != 0 {
		t.Skip("only root creates device nodes")
	}
	if err := os.WriteFile(devices, loaded, 0o644); err != nil {
		t.Fatal(err)
	}
	a.device(t, "gpu-1b-00", func(d state.DeviceHealth) bool { return d.Healthy }, scan)
	if info, err := os.Stat(node); err != nil || info.Mode().Type() != fs.ModeDevice|fs.ModeCharDevice {
		t.Errorf("%s: %v, %v; want a device node", node, info, err)
	}
}
