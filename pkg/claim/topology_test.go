// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A container has a whole GPU, shares of another by two claims, and a GPU whose place in
// the machine is unknown. Its pod has set a variable of the same name.
func TestAContainerLearnsThePlaceOfAllItsGPUs(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 3)
	address := gpu.PCIAddress{Bus: 1}
	shared := w.gpus[address]
	shared.NUMANode, shared.CPUs = ptr.To(0), "0-55,112-167"
	shared.NICs = []gpu.NIC{{Address: gpu.PCIAddress{Bus: 0x18}, RDMADevices: []string{"mlx5_0"}}, {Address: gpu.PCIAddress{Bus: 0x19}, RDMADevices: []string{"mlx5_1"}}}
	w.gpus[address] = shared
	address = gpu.PCIAddress{Domain: 8, Bus: 2}
	w.gpus[address] = gpu.GPU{Address: address, UUID: "GPU-8", Minor: 8, MemoryBytes: memory, NUMANode: ptr.To(1), CPUs: "56-111"}

	m, _ := w.restart(t.Context())
	var ids []string
	for _, c := range []*resourceapi.ResourceClaim{
		pieces("a", piece{device: "gpu-01-00", memory: "20Gi"}, piece{device: "gpu-0008-02-00-0"}),
		pieces("b", piece{device: "gpu-01-00", memory: "30Gi"}),
		pieces("c", piece{device: "gpu-02-00"}),
	} {
		devices, err := m.Prepare(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range devices {
			ids = append(ids, d.CDIDeviceIDs...)
		}
	}
	container := &oci.Spec{Process: &oci.Process{Env: []string{"GPU_CPUS_01_00=0"}}}
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.cdiDir()))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if device := cache.GetDevice(id); device == nil {
			t.Fatalf("no CDI device %s", id)
		} else if err := (&cdiapi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{Env: device.ContainerEdits.Env}}).Apply(container); err != nil {
			t.Fatal(err)
		}
	}
	env := slices.DeleteFunc(container.Process.Env, func(s string) bool { return !strings.HasPrefix(s, "GPU_") })
	slices.Sort(env)
	want := []string{
		"GPU_CPUS_0008_02_00_0=56-111",
		"GPU_CPUS_01_00=0-55,112-167",
		"GPU_NICS_01_00=0000:18:00.0,0000:19:00.0",
		"GPU_NUMA_NODE_0008_02_00_0=1",
		"GPU_NUMA_NODE_01_00=0",
		"GPU_RDMA_DEVICES_01_00=mlx5_0,mlx5_1",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
