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
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

func TestAGPUThatHangsHoldsUpNoClaimForAnother(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"from the start", "later"} {
		t.Run(when, func(t *testing.T) {
			bad, good := claimFor("bad", "gpu-43-00"), claimFor("good", "gpu-1b-00")
			n := newNode(t, bad, good)
			if when == "from the start" {
				// The simulated node is there before the agent.
				if err := n.hardware(t).close(); err != nil {
					t.Fatal(err)
				}
			}
			hang := func() *nvmlsim.Sim {
				sim, err := nvmlsim.Open(n.SimState)
				if err != nil {
					t.Fatal(err)
				}
				if err := sim.HangGPU(1); err != nil {
					t.Fatal(err)
				}
				return sim
			}
			var sim *nvmlsim.Sim
			if when == "from the start" {
				sim = hang()
			}
			a := n.start(t)
			if sim == nil {
				n.published(t)
				sim = hang()
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
		})
	}
}

func TestAClaimIsNotReadyWithoutTheNodesThatCUDANeeds(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	a := n.start(t)
	n.published(t)
	// Otherwise a scan creates the nodes.
	if err := os.WriteFile(filepath.Join(n.SimState, "proc/driver/nvidia/params"), []byte("ModifyDeviceFiles: 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for node, remedy := range map[string]string{"nvidia-uvm": "nvidia-modprobe", "nvidia0": "nvidia-smi"} {
		path := filepath.Join(n.SimState, "dev", node)
		if err := os.Rename(path, path+".gone"); err != nil {
			t.Fatal(err)
		}
		// The agent tries again until it has to answer, 4 seconds before the end.
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		results, err := a.kubelet.Prepare(ctx, claim)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		result := results["uid-one"]
		if !strings.Contains(result.Error, "/dev/"+node) || !strings.Contains(result.Error, remedy) {
			t.Errorf("without %s: %q, want the node and %q", node, result.Error, remedy)
		}
		if left := n.left(t); len(left) != 0 {
			t.Errorf("left behind: %q", left)
		}
		if err := os.Rename(path+".gone", path); err != nil {
			t.Fatal(err)
		}
		a.device(t, "gpu-1b-00", func(d state.DeviceHealth) bool { return d.Healthy }, func() error { a.inventory.RequestScan(); return nil })
	}
	if result := a.prepare(t, claim)["uid-one"]; result.Error != "" {
		t.Errorf("with all nodes: %s", result.Error)
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
	scan := func() error { a.inventory.RequestScan(); return nil }
	for _, name := range []string{"gpu-1b-00", "gpu-df-00"} {
		a.device(t, name, func(d state.DeviceHealth) bool {
			return d.Reason == "device-node-missing" && strings.Contains(d.Message, "the kernel module nvidia-uvm is not loaded")
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
