// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// readLinks reads the NVLinks of the GPU, active or not, and their version.
func readLinks(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	g.Links = []gpu.Link{}
	for number := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(number)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			return nil // beyond the last link that this driver knows
		}
		present, err := optional(fmt.Sprintf("read NVLink %d", number), ret)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		link := gpu.Link{Number: number, Active: state == nvml.FEATURE_ENABLED}
		if err := readRemote(lib, device, &link); err != nil {
			return err
		}
		if link.Active && g.NVLinkVersion.IsZero() {
			if err := readLinkVersion(device, number, g); err != nil {
				return err
			}
		}
		g.Links = append(g.Links, link)
	}
	return nil
}

// readLinkVersion reads the version of a link. All links of a GPU have the same one.
func readLinkVersion(device nvml.Device, number int, g *gpu.GPU) error {
	version, ret := device.GetNvLinkVersion(number)
	present, err := optional(fmt.Sprintf("read the version of NVLink %d", number), ret)
	if err == nil && present {
		g.NVLinkVersion = linkVersions[nvml.NvlinkVersion(version)]
	}
	return err
}

func readRemote(lib nvml.Interface, device nvml.Device, link *gpu.Link) error {
	if has(lib, "nvmlDeviceGetNvLinkRemoteDeviceType") {
		kind, ret := device.GetNvLinkRemoteDeviceType(link.Number)
		if present, err := optional(fmt.Sprintf("read the far end of NVLink %d", link.Number), ret); err != nil {
			return err
		} else if present {
			link.Remote = linkRemotes[kind]
		}
	}
	pci, ret := device.GetNvLinkRemotePciInfo(link.Number)
	present, err := optional(fmt.Sprintf("read the PCI address at the far end of NVLink %d", link.Number), ret)
	if err != nil {
		return err
	}
	// The address is empty or all ones if the far end is not a PCI device of this
	// node, such as a switch in another tray.
	if address, err := gpu.ParsePCIAddress(text(pci.BusId[:])); present && err == nil {
		link.RemoteAddress = &address
	}
	return nil
}

// readFabric reads the GPU's registration with its NVSwitch fabric, and the
// multi-node fabric that it has joined. GPUs that do not join a fabric report that
// they do not support it: PCIe cards, bridged GPUs, and GPUs behind NVSwitch before
// Hopper. The fabric of a single node has no cluster UUID and is not reported as a
// [gpu.Fabric].
func readFabric(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	if !has(lib, "nvmlDeviceGetGpuFabricInfo") {
		return nil
	}
	// The versioned successors of this call cannot be simulated: go-nvml
	// returns a handler that calls the C library by itself.
	info, ret := device.GetGpuFabricInfo()
	present, err := optional("read its fabric", ret)
	if err != nil || !present {
		return err
	}
	g.FabricState = fabricState(info)
	cluster := uuid.UUID(info.ClusterUuid)
	if g.FabricState == gpu.FabricCompleted && cluster != uuid.Nil {
		g.Fabric = &gpu.Fabric{ClusterUUID: cluster.String(), CliqueID: info.CliqueId}
	}
	return nil
}

// fabricState returns the state of the registration. NVML's status is valid only
// if the registration is completed. A state that this release does not know is
// left empty, as if the GPU joined no fabric.
func fabricState(info nvml.GpuFabricInfo) gpu.FabricState {
	switch info.State {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		return gpu.FabricNotStarted
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		return gpu.FabricInProgress
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		if nvml.Return(info.Status) != nvml.SUCCESS {
			return gpu.FabricFailed
		}
		return gpu.FabricCompleted
	default:
		return ""
	}
}
