// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// h100 returns a simulated DGX H100.
func h100(t *testing.T) *nvmlsim.Sim {
	t.Helper()
	model, err := nvmlsim.LoadModel("dgx-h100")
	must(t, err)
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), model)
	must(t, err)
	return sim
}

func TestASpecForASimulatedNode(t *testing.T) {
	sim := h100(t)
	edits := cdi.NewDriverEdits(nvml.New(sim.NVML()), cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}, "/usr/bin/nvidia-cdi-hook")
	dir := t.TempDir()
	w, err := cdi.NewWriter(cdi.Options{Dir: dir, DriverName: "gpu.nvidia.com", DevRoot: sim.Root(), Edits: edits})
	must(t, err)
	_, err = w.Write(t.Context(), "a", types.NamespacedName{Namespace: "team-a", Name: "one"}, []gpu.Injection{{ID: "a-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}}})
	must(t, err)
	spec, err := cdiapi.ReadSpec(filepath.Join(dir, "gpu.nvidia.com-claim-a.json"), 0)
	must(t, err)
	require.Same(t, "the GPU's device node on the host", sim.Root()+"/dev/nvidia0", spec.Devices[0].ContainerEdits.DeviceNodes[0].HostPath)
	var mounted []string
	for _, m := range spec.ContainerEdits.Mounts {
		if !strings.HasPrefix(m.HostPath, sim.Root()+"/") {
			t.Errorf("%s is mounted from outside the simulated driver's root", m.HostPath)
		}
		name, _, _ := strings.Cut(filepath.Base(m.ContainerPath), ".so")
		mounted = append(mounted, name)
	}
	// The simulated nvidia-smi reads the GPUs' firmware.
	for _, want := range []string{"libcuda", "libnvidia-ml", "nvidia-smi", "nvidia-cuda-mps-control", "gsp_ga10x.bin"} {
		if !slices.Contains(mounted, want) {
			t.Errorf("%s is not mounted; mounted are %q", want, mounted)
		}
	}
}

// The nodes of GPUDirect come with the kernel modules, which may be loaded later than the
// agent starts.
func TestInterfacesOfGPUDirectAreInTheSpecOnceTheirModuleIsLoaded(t *testing.T) {
	sim := h100(t)
	if info, err := os.Stat(filepath.Join(sim.Root(), "dev/gdrdrv")); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Skip("only root can make device nodes, and nvcdi takes no other files")
	}
	roots := cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}
	changes := func(edits *cdi.DriverEdits) string {
		t.Helper()
		got, err := edits.Edits(t.Context())
		must(t, err)
		var names []string
		for _, n := range got.DeviceNodes {
			if !strings.HasPrefix(n.Path, "/dev/nvidia") || strings.HasPrefix(n.Path, "/dev/nvidia-fs") {
				names = append(names, n.Path)
			}
		}
		for _, m := range got.Mounts {
			if m.ContainerPath == "/run/udev" || m.ContainerPath == "/etc/cufile.json" {
				names = append(names, m.ContainerPath)
			}
		}
		return strings.Join(names, " ")
	}
	source := func(directs ...gpu.Direct) *cdi.DriverEdits {
		return cdi.NewDriverEdits(nvml.New(sim.NVML()), roots, "/usr/bin/nvidia-cdi-hook", directs...)
	}
	for _, c := range []struct {
		directs []gpu.Direct
		want    string
	}{
		{nil, ""},
		{[]gpu.Direct{gpu.DirectCopy}, "/dev/gdrdrv"},
		{[]gpu.Direct{gpu.DirectRDMA}, "/dev/infiniband/rdma_cm /dev/infiniband/uverbs0"},
		{[]gpu.Direct{gpu.DirectStorage, gpu.DirectCopy}, "/dev/gdrdrv /dev/nvidia-fs0 /dev/nvidia-fs1 /etc/cufile.json /run/udev"},
	} {
		require.Same(t, fmt.Sprintf("with %q", c.directs), c.want, changes(source(c.directs...)))
	}
	path := filepath.Join(sim.Root(), "dev/gdrdrv")
	must(t, os.Rename(path, path+".gone"))
	later := source(gpu.DirectStorage, gpu.DirectCopy)
	if got := changes(later); strings.Contains(got, "gdrdrv") || !strings.Contains(got, "/dev/nvidia-fs0") {
		t.Errorf("without the module gdrdrv: %q, want the nodes of the other module", got)
	}
	must(t, os.Rename(path+".gone", path))
	if got := changes(later); !strings.Contains(got, "/dev/gdrdrv") {
		t.Errorf("once the module is loaded: %q, want its node", got)
	}
}

// An image with a newer CUDA than the driver's has libraries for forward compatibility,
// which the hook makes usable.
func TestTheHookForForwardCompatibilityIsInEverySpec(t *testing.T) {
	sim := h100(t)
	edits, err := cdi.NewDriverEdits(nvml.New(sim.NVML()), cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}, "/usr/bin/nvidia-cdi-hook").Edits(t.Context())
	must(t, err)
	var hooks []string
	for _, h := range edits.Hooks {
		hooks = append(hooks, strings.Join(h.Args, " "))
	}
	want := "nvidia-cdi-hook enable-cuda-compat --host-driver-version=" + sim.Model().DriverVersion
	if !slices.Contains(hooks, want) {
		t.Errorf("hooks %q, want %q among them", hooks, want)
	}
}

func TestNoSpecIsWrittenWhileADeviceNodeIsMissing(t *testing.T) {
	sim := h100(t)
	edits := cdi.NewDriverEdits(nvml.New(sim.NVML()), cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}, "/usr/bin/nvidia-cdi-hook")
	w, err := cdi.NewWriter(cdi.Options{
		Dir: t.TempDir(), DriverName: "gpu.nvidia.com", DevRoot: "/host", LocalDevRoot: sim.Root(), Edits: edits,
	})
	must(t, err)
	write := func() error {
		_, err := w.Write(t.Context(), "a", types.NamespacedName{Namespace: "team-a", Name: "one"}, []gpu.Injection{
			{ID: "a-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}},
			{ID: "a-gpu-43-00", DeviceNodes: []string{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap2"}},
		})
		return err
	}
	for _, node := range []string{"nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap2"} {
		path := filepath.Join(sim.Root(), "dev", node)
		must(t, os.Rename(path, path+".gone"))
		if err := write(); !errors.Is(err, gpu.ErrNotReady) || !strings.Contains(err.Error(), path) {
			t.Errorf("without %s: error %v, want %v", node, err, gpu.ErrNotReady)
		}
		if written, err := w.List(t.Context()); err != nil || len(written) > 0 {
			t.Errorf("without %s: specs %v, %v, want none", node, written, err)
		}
		must(t, os.Rename(path+".gone", path))
	}
	for _, node := range []string{"nvidia-uvm-tools", "nvidia-modeset"} {
		must(t, os.Remove(filepath.Join(sim.Root(), "dev", node)))
	}
	if err := write(); err != nil {
		t.Errorf("without the nodes that CUDA can do without: %v", err)
	}
}

// One GPU that hangs in every call must not keep claims for others from being
// prepared.
func TestTheDriversEditsNeedNoGPUToAnswer(t *testing.T) {
	sim := h100(t)
	t.Cleanup(func() { _ = sim.ClearFaults() })
	edits := func() *cdi.DriverEdits {
		return cdi.NewDriverEdits(nvml.New(sim.NVML()), cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}, "/usr/bin/nvidia-cdi-hook")
	}
	later := edits()
	if _, err := later.Edits(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, sim.HangGPU(3))
	if _, err := edits().Edits(t.Context()); err != nil {
		t.Errorf("a GPU that hangs from the start: %v", err)
	}
	// Once they are there, not even the library needs to answer.
	must(t, sim.FailCalls(nvmlsim.CallFault{Method: nvmlsim.EveryMethod, Hang: nvmlsim.Duration(time.Hour)}))
	if _, err := later.Edits(t.Context()); err != nil {
		t.Errorf("a library that hangs later: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := edits().Edits(ctx); !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("a library that hangs from the start: %v, want %v", err, gpu.ErrTimeout)
	}
}

var must = require.NoError
