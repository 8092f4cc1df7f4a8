// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// container is a root file system with the files of a container of the cluster. These
// are the probe of the test cluster, the first GPU of a node and the driver's socket.
func container(t *testing.T, state string) string {
	t.Helper()
	root := filepath.Join(state, "container")
	for _, folder := range []string{"dev", "run/nvidia-persistenced"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0", "run/nvidia-persistenced/socket"} {
		if err := os.Link(filepath.Join(state, file), filepath.Join(root, file)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CGO_ENABLED", "0") // a root file system without libraries
	program, err := os.ReadFile(buildProbe(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "probe"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// cudaReport has the fields of the probe's output that this test reads.
type cudaReport struct {
	AllocatedBytes uint64
	Memory         mpssim.Memory
	Refused        struct{ Name string }
	Processes      []cudaReport
}

// This has no container runtime: a root file system and a cgroup are all that the driver
// can know of a container.
func TestAContainerThatIgnoresMPSGetsWhatItsCgroupAllows(t *testing.T) {
	folder := cgrouptest.New(t) // skips for users who are not root
	state := shortState(t)
	serveDriver(t, state, "dgx-h100-r615")
	root := container(t, state)
	sim, err := nvmlsim.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	lib := sim.NVML()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	device, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	const limit, mib = 10 << 30, 1 << 20
	if ret := device.SetMemoryLimits_v1(folder, 0, limit); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	group, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close() //nolint:errcheck // a folder
	probe := exec.CommandContext(t.Context(), "/probe", "cuda", "--no-mps", "--greedy", "--processes", "3", "--once")
	probe.Dir = "/"
	probe.SysProcAttr = &syscall.SysProcAttr{Chroot: root, UseCgroupFD: true, CgroupFD: int(group.Fd())}
	out, err := probe.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got cudaReport
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	h100 := nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}}
	contexts := uint64(0)
	for _, p := range got.Processes {
		if p.Refused.Name != "OUT_OF_MEMORY" {
			t.Errorf("a process stopped without a refusal: %+v", p)
		}
		if p.Memory.TotalBytes > 0 {
			contexts++
			if p.Memory.TotalBytes != limit {
				t.Errorf("CUDA reports %d MiB, want the limit", p.Memory.TotalBytes/mib)
			}
		}
	}
	// A process that comes late may have no room for a context.
	most := limit - contexts*h100.ContextBytes(132)
	if len(got.Processes) != 3 || contexts == 0 || got.AllocatedBytes > most || got.AllocatedBytes < most-mib {
		t.Errorf("%d processes have %d MiB in all, want %d MiB", contexts, got.AllocatedBytes/mib, most/mib)
	}
}
