// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The functions of links between GPUs.

//export nvmlDeviceGetNvLinkState
func nvmlDeviceGetNvLinkState(device handle, link uint32, active *uint32) status {
	return readNumber(device, active, func(d nvml.Device) (nvml.EnableState, nvml.Return) { return d.GetNvLinkState(int(link)) })
}

//export nvmlDeviceGetNvLinkVersion
func nvmlDeviceGetNvLinkVersion(device handle, link uint32, version *uint32) status {
	return read(device, unsafe.Pointer(version), func(d nvml.Device) (uint32, nvml.Return) { return d.GetNvLinkVersion(int(link)) })
}

//export nvmlDeviceGetNvLinkCapability
func nvmlDeviceGetNvLinkCapability(device handle, link, capability uint32, has *uint32) status {
	return read(device, unsafe.Pointer(has), func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetNvLinkCapability(int(link), nvml.NvLinkCapability(capability))
	})
}

//export nvmlDeviceGetNvLinkRemoteDeviceType
func nvmlDeviceGetNvLinkRemoteDeviceType(device handle, link uint32, kind *uint32) status {
	return readNumber(device, kind, func(d nvml.Device) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return d.GetNvLinkRemoteDeviceType(int(link))
	})
}

//export nvmlDeviceGetNvLinkRemotePciInfo
func nvmlDeviceGetNvLinkRemotePciInfo(device handle, link uint32, info unsafe.Pointer) status {
	return readOlderPCIInfo(device, info, 2, func(d nvml.Device) (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(int(link)) })
}

//export nvmlDeviceGetNvLinkRemotePciInfo_v2
func nvmlDeviceGetNvLinkRemotePciInfo_v2(device handle, link uint32, info unsafe.Pointer) status {
	return read(device, info, func(d nvml.Device) (nvml.PciInfo, nvml.Return) { return d.GetNvLinkRemotePciInfo(int(link)) })
}

// readPair stores the result of a method of two GPUs.
func readPair[V number](device, other handle, to *uint32, method func(nvml.Device, nvml.Device) (V, nvml.Return)) status {
	second, ret := object[nvml.Device](other)
	if ret != 0 {
		return ret
	}
	return readNumber(device, to, func(first nvml.Device) (V, nvml.Return) { return method(first, second) })
}

//export nvmlDeviceGetTopologyCommonAncestor
func nvmlDeviceGetTopologyCommonAncestor(device, other handle, level *uint32) status {
	return readPair(device, other, level, nvml.Device.GetTopologyCommonAncestor)
}

//export nvmlDeviceGetP2PStatus
func nvmlDeviceGetP2PStatus(device, other handle, capability uint32, answer *uint32) status {
	return readPair(device, other, answer, func(d, o nvml.Device) (nvml.GpuP2PStatus, nvml.Return) {
		return d.GetP2PStatus(o, nvml.GpuP2PCapsIndex(capability))
	})
}

//export nvmlDeviceGetGpuFabricInfo
func nvmlDeviceGetGpuFabricInfo(device handle, info unsafe.Pointer) status {
	return read(device, info, nvml.Device.GetGpuFabricInfo)
}

//export nvmlDeviceGetGpuFabricInfoV
func nvmlDeviceGetGpuFabricInfoV(device handle, info unsafe.Pointer) status {
	ret := readVersion(device, info, 3, nvmlsim.Versioned.GpuFabricInfo_v3)
	if ret != wrongVersion {
		return ret
	}
	return readVersion(device, info, 2, func(d nvmlsim.Versioned) (nvml.GpuFabricInfo_v2, nvml.Return) {
		have, ret := d.GpuFabricInfo_v3()
		return nvml.GpuFabricInfo_v2{
			Version: versionOf[nvml.GpuFabricInfo_v2](2), ClusterUuid: have.ClusterUuid, Status: have.Status,
			CliqueId: have.CliqueId, State: have.State, HealthMask: have.HealthMask,
		}, ret
	})
}

//export nvmlDeviceGetGpuFabricInfo_v4
func nvmlDeviceGetGpuFabricInfo_v4(device handle, info unsafe.Pointer) status {
	return read(device, info, nvml.Device.GetGpuFabricInfo_v4)
}
