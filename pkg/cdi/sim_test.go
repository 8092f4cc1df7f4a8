package cdi_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

func TestASpecForASimulatedNode(t *testing.T) {
	model, err := nvmlsim.LoadModel("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), model)
	if err != nil {
		t.Fatal(err)
	}
	edits := cdi.NewDriverEdits(sim.NVML(), cdi.Roots{Driver: sim.Root(), Dev: sim.Root()}, "/usr/bin/nvidia-cdi-hook")
	dir := t.TempDir()
	w, err := cdi.NewWriter(cdi.Options{Dir: dir, DriverName: "gpu.nvidia.com", DevRoot: sim.Root(), Edits: edits})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(t.Context(), "a", types.NamespacedName{Namespace: "team-a", Name: "one"}, []gpu.Injection{{ID: "a-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}}})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cdiapi.ReadSpec(filepath.Join(dir, "gpu.nvidia.com-claim-a.json"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sim.Root()+"/dev/nvidia0", spec.Devices[0].ContainerEdits.DeviceNodes[0].HostPath); diff != "" {
		t.Errorf("the GPU's device node on the host (-want +got):\n%s", diff)
	}
	var mounted []string
	for _, m := range spec.ContainerEdits.Mounts {
		if !strings.HasPrefix(m.HostPath, sim.Root()+"/") {
			t.Errorf("%s is mounted from outside the simulated driver's root", m.HostPath)
		}
		name, _, _ := strings.Cut(filepath.Base(m.ContainerPath), ".so")
		mounted = append(mounted, name)
	}
	for _, want := range []string{"libcuda", "libnvidia-ml", "nvidia-smi"} {
		if !slices.Contains(mounted, want) {
			t.Errorf("%s is not mounted; mounted are %q", want, mounted)
		}
	}
}
