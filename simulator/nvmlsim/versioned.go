// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// The calls of libnvidia-ml that take a struct of a version. Go-nvml has no interface for
// them: its methods return a handler that calls the library itself. So the handles of this
// package have them under other names, for the library of C.

// Versioned is implemented by the handles of devices.
type Versioned interface {
	// GpuFabricInfo_v3 is nvmlDeviceGetGpuFabricInfoV.
	GpuFabricInfo_v3() (nvml.GpuFabricInfo_v3, nvml.Return)
	// GpuInstanceProfileInfo_v3 is nvmlDeviceGetGpuInstanceProfileInfoV.
	GpuInstanceProfileInfo_v3(profile int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
	// GpuInstanceProfileInfoByID_v3 is nvmlDeviceGetGpuInstanceProfileInfoByIdV.
	GpuInstanceProfileInfoByID_v3(id uint32) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
}

// VersionedInstance is implemented by the handles of GPU instances.
type VersionedInstance interface {
	// ComputeInstanceProfileInfo_v3 is nvmlGpuInstanceGetComputeInstanceProfileInfoV.
	ComputeInstanceProfileInfo_v3(profile, engineProfile int) (nvml.ComputeInstanceProfileInfo_v3, nvml.Return)
}

var (
	_ Versioned         = device{}
	_ VersionedInstance = gpuInstance{}
)

// GpuFabricInfo_v3 is nvmlDeviceGetGpuFabricInfoV.
func (d device) GpuFabricInfo_v3() (nvml.GpuFabricInfo_v3, nvml.Return) { //nolint:revive // the name is go-nvml's
	f, ret := d.enterFabric("DeviceGetGpuFabricInfoV")
	if ret != nvml.SUCCESS {
		return nvml.GpuFabricInfo_v3{}, ret
	}
	nv := fabricStates[f.state]
	info := nvml.GpuFabricInfo_v3{ClusterUuid: f.cluster, CliqueId: f.clique, State: nv.state, Status: uint32(nv.status), HealthSummary: f.health()}
	info.Version = nvml.STRUCT_VERSION(info, 3)
	return info, nvml.SUCCESS
}

// GpuInstanceProfileInfo_v3 is nvmlDeviceGetGpuInstanceProfileInfoV.
func (d device) GpuInstanceProfileInfo_v3(profile int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, p, ret := d.enterProfileNumber("DeviceGetGpuInstanceProfileInfoV", profile)
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo_v3{}, ret
	}
	return c.gpuProfileInfo(p), nvml.SUCCESS
}

// GpuInstanceProfileInfoByID_v3 is nvmlDeviceGetGpuInstanceProfileInfoByIdV.
func (d device) GpuInstanceProfileInfoByID_v3(id uint32) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, p, ret := d.enterProfile("DeviceGetGpuInstanceProfileInfoByIdV", &nvml.GpuInstanceProfileInfo{Id: id})
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo_v3{}, ret
	}
	return c.gpuProfileInfo(p), nvml.SUCCESS
}

// gpuProfileInfo returns the facts of a GPU instance profile.
func (c call) gpuProfileInfo(p *profileSpec) nvml.GpuInstanceProfileInfo_v3 {
	info := nvml.GpuInstanceProfileInfo_v3{
		Id:                  uint32(p.ID),
		SliceCount:          uint32(p.slices),
		InstanceCount:       uint32(p.Max),
		MultiprocessorCount: uint32(p.Multiprocessors),
		CopyEngineCount:     uint32(p.CopyEngines),
		DecoderCount:        uint32(p.Decoders),
		EncoderCount:        uint32(p.Encoders),
		JpegCount:           uint32(p.JPEGs),
		OfaCount:            uint32(p.OFAs),
		MemorySizeMB:        p.MemoryMiB,
	}
	info.Version = nvml.STRUCT_VERSION(info, 3)
	putString(info.Name[:], "MIG "+p.Name)
	if p.P2P {
		info.Capabilities = nvml.GPU_INSTANCE_PROFILE_CAPS_P2P
	}
	return info
}

// ComputeInstanceProfileInfo_v3 is nvmlGpuInstanceGetComputeInstanceProfileInfoV.
func (h gpuInstance) ComputeInstanceProfileInfo_v3(profile, engineProfile int) (nvml.ComputeInstanceProfileInfo_v3, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, cp, ret := h.enterProfileNumber("GpuInstanceGetComputeInstanceProfileInfoV", profile, engineProfile)
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceProfileInfo_v3{}, ret
	}
	return c.computeProfileInfo(cp), nvml.SUCCESS
}

// computeProfileInfo returns the facts of a compute instance profile. Its ID is its number.
func (c call) computeProfileInfo(cp *computeProfile) nvml.ComputeInstanceProfileInfo_v3 {
	p := c.spec.profiles[c.instance.Profile]
	info := nvml.ComputeInstanceProfileInfo_v3{
		Id:                    uint32(cp.number),
		SliceCount:            uint32(cp.slices),
		InstanceCount:         uint32(cp.max),
		MultiprocessorCount:   uint32(cp.multiprocessors),
		SharedCopyEngineCount: uint32(p.CopyEngines),
		SharedDecoderCount:    uint32(p.Decoders),
		SharedEncoderCount:    uint32(p.Encoders),
		SharedJpegCount:       uint32(p.JPEGs),
		SharedOfaCount:        uint32(p.OFAs),
	}
	info.Version = nvml.STRUCT_VERSION(info, 3)
	putString(info.Name[:], "MIG "+c.spec.migName(c.instance, &ComputeInstance{Profile: cp.number}))
	return info
}

// MIGDevice is implemented by the handles of compute instances. It returns the handle of
// their MIG device, without a call.
type MIGDevice interface{ MIGDevice() nvml.Device }

var _ MIGDevice = computeInstance{}

// MIGDevice returns the handle of the MIG device.
func (h computeInstance) MIGDevice() nvml.Device {
	mig := h.instance.device
	mig.mig = h.uuid
	return mig
}
