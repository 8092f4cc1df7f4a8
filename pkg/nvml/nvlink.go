// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// readLinks reads the NVLinks that the GPU has, up or down.
func readLinks(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	for number := range nvml.NVLINK_MAX_LINKS {
		state, ret := device.GetNvLinkState(number)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			return nil // beyond the last link that this driver knows
		}
		told, err := optional(fmt.Sprintf("read NVLink %d", number), ret)
		if err != nil {
			return err
		}
		if !told {
			continue
		}
		link := gpu.Link{Number: number, Active: state == nvml.FEATURE_ENABLED}
		if err := readRemote(lib, device, &link); err != nil {
			return err
		}
		g.Links = append(g.Links, link)
	}
	return nil
}

func readRemote(lib nvml.Interface, device nvml.Device, link *gpu.Link) error {
	if has(lib, "nvmlDeviceGetNvLinkRemoteDeviceType") {
		kind, ret := device.GetNvLinkRemoteDeviceType(link.Number)
		if told, err := optional(fmt.Sprintf("read the far end of NVLink %d", link.Number), ret); err != nil {
			return err
		} else if told {
			link.Remote = linkRemotes[kind]
		}
	}
	pci, ret := device.GetNvLinkRemotePciInfo(link.Number)
	told, err := optional(fmt.Sprintf("read the PCI address at the far end of NVLink %d", link.Number), ret)
	if err != nil {
		return err
	}
	// A far end that is no PCI device here, such as a switch in another tray,
	// has an address that is empty or all ones.
	if address, err := gpu.ParsePCIAddress(text(pci.BusId[:])); told && err == nil {
		link.RemoteAddress = &address
	}
	return nil
}

// readFabric reads how far the GPU has come in joining its NVSwitch fabric, and
// the multi-node fabric it has joined. GPUs that join none, such as PCIe cards,
// bridged ones and those behind NVSwitch before Hopper, report that they do not
// support it. The switches of one node make a fabric without a cluster UUID, which
// is no [gpu.Fabric].
func readFabric(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	if !has(lib, "nvmlDeviceGetGpuFabricInfo") {
		return nil
	}
	// The versioned successors of this call cannot be simulated: go-nvml
	// returns a handler that calls the C library by itself.
	info, ret := device.GetGpuFabricInfo()
	told, err := optional("read its fabric", ret)
	if err != nil || !told {
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
