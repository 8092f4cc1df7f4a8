// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func text(s []int8) string {
	var b strings.Builder
	for _, c := range s {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

func TestIdentityOfAGPU(t *testing.T) {
	s, lib := newTestSim(t, "gb200")
	d := gpuHandle(t, lib, 2)
	pci := must[nvml.PciInfo](t, "PCI")(d.GetPciInfo())
	if got := text(pci.BusId[:]); got != "00000018:01:00.0" || pci.Domain != 0x18 || pci.Bus != 1 || pci.PciDeviceId != 0x294110de {
		t.Errorf("PCI %s, %+v", got, pci)
	}
	major, minor, _ := d.GetCudaComputeCapability()
	mode := must[nvml.DeviceAddressingMode](t, "addressing")(d.GetAddressingMode())
	fabric := must[nvml.GpuFabricInfo](t, "fabric")(d.GetGpuFabricInfo())
	got := map[string]any{
		"name":       must[string](t, "name")(d.GetName()),
		"brand":      must[nvml.BrandType](t, "brand")(d.GetBrand()),
		"arch":       must[nvml.DeviceArchitecture](t, "arch")(d.GetArchitecture()),
		"capability": [2]int{major, minor},
		"cores":      must[int](t, "cores")(d.GetNumGpuCores()),
		"memory":     must[nvml.Memory](t, "memory")(d.GetMemoryInfo()).Total,
		"index":      must[int](t, "index")(d.GetIndex()),
		"minor":      must[int](t, "minor")(d.GetMinorNumber()),
		"addressing": nvml.DeviceAddressingModeType(mode.Value),
		"memoryNode": must[int](t, "NUMA")(d.GetNumaNodeId()),
		"driver":     must[string](t, "driver")(lib.SystemGetDriverVersion()),
		"cuda":       must[int](t, "CUDA")(lib.SystemGetCudaDriverVersion_v2()),
		"clique":     fabric.CliqueId,
		"cluster":    fabric.ClusterUuid,
	}
	want := map[string]any{
		"name": "NVIDIA GB200", "brand": nvml.BRAND_NVIDIA, "arch": nvml.DeviceArchitecture(nvml.DEVICE_ARCH_BLACKWELL),
		"capability": [2]int{10, 0}, "cores": 19456, "memory": uint64(189471) << 20, "index": 2, "minor": 2,
		"addressing": nvml.DEVICE_ADDRESSING_MODE_ATS, "memoryNode": 4,
		"driver": "570.158.01", "cuda": 12080,
		"clique": uint32(32766), "cluster": parseUUID(s.node.model.Fabric.ClusterUUID),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

func TestHandlesByIndexUUIDAndAddressNameTheSameGPU(t *testing.T) {
	_, lib := newTestSim(t, "dgx-h100")
	byIndex := gpuHandle(t, lib, 3)
	byUUID := must[nvml.Device](t, "UUID")(lib.DeviceGetHandleByUUID(must[string](t, "UUID")(byIndex.GetUUID())))
	short := must[nvml.Device](t, "PCI")(lib.DeviceGetHandleByPciBusId("0000:61:00.0"))
	long := must[nvml.Device](t, "PCI")(lib.DeviceGetHandleByPciBusId("00000000:61:00.0"))
	if byUUID != byIndex || short != byIndex || long != byIndex {
		t.Errorf("index %v, UUID %v, PCI %v and %v", byIndex, byUUID, short, long)
	}
}

func TestUUIDsAreStableAndDifferent(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		s, _ := newTestSim(t, "dgx-h100")
		for _, g := range s.node.gpus {
			if !gpuUUID.MatchString(g.uuid) {
				t.Errorf("UUID %q", g.uuid)
			}
			seen[g.uuid] = true
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d UUIDs for 8 GPUs of two equal nodes", len(seen))
	}
}

func TestNVLinkTopologies(t *testing.T) {
	for _, tc := range []struct {
		model        string
		gpu          int
		links        int
		remote       nvml.IntNvLinkDeviceType
		toAddress    string
		linksThere   int
		nvlinkP2PTo  int
		nvlinkStatus nvml.GpuP2PStatus
	}{
		{"dgx-h100", 0, 18, nvml.NVLINK_DEVICE_TYPE_SWITCH, "00000000:05:00.0", 5, 7, nvml.P2P_STATUS_OK},
		{"dgx-a100", 0, 12, nvml.NVLINK_DEVICE_TYPE_SWITCH, "00000000:C9:00.0", 2, 7, nvml.P2P_STATUS_OK},
		{"dgx1-v100", 0, 6, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:0B:00.0", 2, 5, nvml.P2P_STATUS_NOT_SUPPORTED},
		{"a30-bridge", 0, 4, nvml.NVLINK_DEVICE_TYPE_GPU, "00000000:65:00.0", 4, 2, nvml.P2P_STATUS_NOT_SUPPORTED},
	} {
		t.Run(tc.model, func(t *testing.T) {
			_, lib := newTestSim(t, tc.model)
			d := gpuHandle(t, lib, tc.gpu)
			count, there := 0, 0
			for link := range nvml.NVLINK_MAX_LINKS {
				state, ret := d.GetNvLinkState(link)
				if ret == nvml.ERROR_INVALID_ARGUMENT {
					break
				}
				if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
					t.Errorf("link %d: %v, %v", link, state, ret)
				}
				count++
				if kind := must[nvml.IntNvLinkDeviceType](t, "remote")(d.GetNvLinkRemoteDeviceType(link)); kind != tc.remote {
					t.Errorf("link %d leads to %v", link, kind)
				}
				pci := must[nvml.PciInfo](t, "remote PCI")(d.GetNvLinkRemotePciInfo(link))
				if text(pci.BusId[:]) == tc.toAddress {
					there++
				}
			}
			if count != tc.links || there != tc.linksThere {
				t.Errorf("%d links, %d of them to %s; want %d and %d", count, there, tc.toAddress, tc.links, tc.linksThere)
			}
			if status := must[nvml.GpuP2PStatus](t, "P2P")(d.GetP2PStatus(gpuHandle(t, lib, tc.nvlinkP2PTo), nvml.P2P_CAPS_INDEX_NVLINK)); status != tc.nvlinkStatus {
				t.Errorf("NVLink to GPU %d: %v", tc.nvlinkP2PTo, status)
			}
		})
	}
}

func TestTopologyFollowsBridgesRootsAndNUMANodes(t *testing.T) {
	_, lib := newTestSim(t, "l40s")
	for other, want := range map[int]nvml.GpuTopologyLevel{
		0: nvml.TOPOLOGY_INTERNAL, 1: nvml.TOPOLOGY_SINGLE, 2: nvml.TOPOLOGY_NODE, 4: nvml.TOPOLOGY_SYSTEM,
	} {
		if got := must[nvml.GpuTopologyLevel](t, "ancestor")(gpuHandle(t, lib, 0).GetTopologyCommonAncestor(gpuHandle(t, lib, other))); got != want {
			t.Errorf("GPU 0 and %d: %v, want %v", other, got, want)
		}
	}
}

func TestProcessesShowInMemoryAndList(t *testing.T) {
	s, lib := newTestSim(t, "t4")
	d := gpuHandle(t, lib, 0)
	noError(t, s.AddProcess(0, Process{PID: 42, Name: "train", MemoryBytes: 1 << 30}))
	processes := must[[]nvml.ProcessInfo](t, "processes")(d.GetComputeRunningProcesses())
	want := []nvml.ProcessInfo{{Pid: 42, UsedGpuMemory: 1 << 30, GpuInstanceId: noInstance, ComputeInstanceId: noInstance}}
	if diff := cmp.Diff(want, processes); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if name := must[string](t, "name")(lib.SystemGetProcessName(42)); name != "train" {
		t.Errorf("name %q", name)
	}
	memory := must[nvml.Memory_v2](t, "memory")(d.GetMemoryInfo_v2())
	if memory.Used != 1<<30 || memory.Free != memory.Total-memory.Reserved-memory.Used {
		t.Errorf("memory %+v", memory)
	}
	noError(t, s.RemoveProcess(42))
	if left := must[[]nvml.ProcessInfo](t, "processes")(d.GetComputeRunningProcesses()); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
