// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The functions of MIG. Profiles have a number, by which programs ask for their facts, and an
// ID in these facts, by which instances refer to them.

// gpuProfile and computeProfile are facts that have no more than the ID.
func gpuProfile(id uint32) *nvml.GpuInstanceProfileInfo { return &nvml.GpuInstanceProfileInfo{Id: id} }

func computeProfile(id uint32) *nvml.ComputeInstanceProfileInfo {
	return &nvml.ComputeInstanceProfileInfo{Id: id}
}

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device handle, current, pending *uint32) status {
	return readTwo(device, current, pending, nvml.Device.GetMigMode)
}

//export nvmlDeviceSetMigMode
func nvmlDeviceSetMigMode(device handle, mode uint32, activation *status) status {
	d, ret := object[nvml.Device](device, unsafe.Pointer(activation))
	if ret != 0 {
		return ret
	}
	activated, code := d.SetMigMode(int(mode))
	// The driver leaves the answer alone if it refuses the call.
	if code == nvml.SUCCESS {
		*activation = status(activated)
	}
	return status(code)
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device handle, is *uint32) status {
	return read(device, unsafe.Pointer(is), func(d nvml.Device) (uint32, nvml.Return) {
		mig, ret := d.IsMigDeviceHandle()
		if mig {
			return 1, ret
		}
		return 0, ret
	})
}

//export nvmlDeviceGetMaxMigDeviceCount
func nvmlDeviceGetMaxMigDeviceCount(device handle, count *uint32) status {
	return readNumber(device, count, nvml.Device.GetMaxMigDeviceCount)
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device handle, index uint32, mig *handle) status {
	return readHandle(device, mig, func(d nvml.Device) (nvml.Device, nvml.Return) { return d.GetMigDeviceHandleByIndex(int(index)) })
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig handle, device *handle) status {
	return readHandle(mig, device, nvml.Device.GetDeviceHandleFromMigDeviceHandle)
}

//export nvmlDeviceGetGpuInstanceId
func nvmlDeviceGetGpuInstanceId(mig handle, id *uint32) status {
	return readNumber(mig, id, nvml.Device.GetGpuInstanceId)
}

//export nvmlDeviceGetComputeInstanceId
func nvmlDeviceGetComputeInstanceId(mig handle, id *uint32) status {
	return readNumber(mig, id, nvml.Device.GetComputeInstanceId)
}

//export nvmlDeviceGetGpuInstanceProfileInfo
func nvmlDeviceGetGpuInstanceProfileInfo(device handle, profile uint32, info unsafe.Pointer) status {
	return read(device, info, func(d nvml.Device) (nvml.GpuInstanceProfileInfo, nvml.Return) {
		return d.GetGpuInstanceProfileInfo(int(profile))
	})
}

// storeGPUProfile stores the facts of a profile in the version of the struct.
func storeGPUProfile(device handle, to unsafe.Pointer, get func(nvmlsim.Versioned) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)) status {
	if ret := readVersion(device, to, 3, get); ret != wrongVersion {
		return ret
	}
	return readVersion(device, to, 2, func(d nvmlsim.Versioned) (nvml.GpuInstanceProfileInfo_v2, nvml.Return) {
		have, ret := get(d)
		return nvml.GpuInstanceProfileInfo_v2{
			Version: versionOf[nvml.GpuInstanceProfileInfo_v2](2), Id: have.Id, IsP2pSupported: have.Capabilities & nvml.GPU_INSTANCE_PROFILE_CAPS_P2P,
			SliceCount: have.SliceCount, InstanceCount: have.InstanceCount, MultiprocessorCount: have.MultiprocessorCount,
			CopyEngineCount: have.CopyEngineCount, DecoderCount: have.DecoderCount, EncoderCount: have.EncoderCount,
			JpegCount: have.JpegCount, OfaCount: have.OfaCount, MemorySizeMB: have.MemorySizeMB, Name: have.Name,
		}, ret
	})
}

//export nvmlDeviceGetGpuInstanceProfileInfoV
func nvmlDeviceGetGpuInstanceProfileInfoV(device handle, profile uint32, info unsafe.Pointer) status {
	return storeGPUProfile(device, info, func(d nvmlsim.Versioned) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
		return d.GpuInstanceProfileInfo_v3(int(profile))
	})
}

//export nvmlDeviceGetGpuInstanceProfileInfoByIdV
func nvmlDeviceGetGpuInstanceProfileInfoByIdV(device handle, id uint32, info unsafe.Pointer) status {
	return storeGPUProfile(device, info, func(d nvmlsim.Versioned) (nvml.GpuInstanceProfileInfo_v3, nvml.Return) {
		return d.GpuInstanceProfileInfoByID_v3(id)
	})
}

// listPlacements stores the placements of a GPU instance profile.
func listPlacements(device handle, id uint32, to unsafe.Pointer, count *uint32) status {
	return readAll(device, to, count, func(d nvml.Device) ([]nvml.GpuInstancePlacement, nvml.Return) {
		return d.GetGpuInstancePossiblePlacements(gpuProfile(id))
	})
}

//export nvmlDeviceGetGpuInstancePossiblePlacements
func nvmlDeviceGetGpuInstancePossiblePlacements(device handle, id uint32, to unsafe.Pointer, count *uint32) status {
	return listPlacements(device, id, to, count)
}

//export nvmlDeviceGetGpuInstancePossiblePlacements_v2
func nvmlDeviceGetGpuInstancePossiblePlacements_v2(device handle, id uint32, to unsafe.Pointer, count *uint32) status {
	return listPlacements(device, id, to, count)
}

//export nvmlDeviceGetGpuInstanceRemainingCapacity
func nvmlDeviceGetGpuInstanceRemainingCapacity(device handle, id uint32, count *uint32) status {
	return readNumber(device, count, func(d nvml.Device) (int, nvml.Return) { return d.GetGpuInstanceRemainingCapacity(gpuProfile(id)) })
}

//export nvmlDeviceCreateGpuInstance
func nvmlDeviceCreateGpuInstance(device handle, id uint32, instance *handle) status {
	return readHandle(device, instance, func(d nvml.Device) (nvml.GpuInstance, nvml.Return) { return d.CreateGpuInstance(gpuProfile(id)) })
}

//export nvmlDeviceCreateGpuInstanceWithPlacement
func nvmlDeviceCreateGpuInstanceWithPlacement(device handle, id uint32, placement unsafe.Pointer, instance *handle) status {
	return readHandle(device, instance, func(d nvml.Device) (nvml.GpuInstance, nvml.Return) {
		return d.CreateGpuInstanceWithPlacement(gpuProfile(id), (*nvml.GpuInstancePlacement)(placement))
	})
}

// listHandles stores the handles of objects. The array of the caller is as long as the
// number of instances in the facts of the profile.
func listHandles[T, V any](h handle, to, count unsafe.Pointer, method func(T) ([]V, nvml.Return)) status {
	o, ret := object[T](h, to, count)
	if ret != 0 {
		return ret
	}
	list, code := method(o)
	if code != nvml.SUCCESS {
		return status(code)
	}
	return storeAll((*handle)(to), (*uint32)(count), mapped(list, func(v V) handle { return process.handles.handleOf(v) }))
}

//export nvmlDeviceGetGpuInstances
func nvmlDeviceGetGpuInstances(device handle, id uint32, instances, count unsafe.Pointer) status {
	return listHandles(device, instances, count, func(d nvml.Device) ([]nvml.GpuInstance, nvml.Return) { return d.GetGpuInstances(gpuProfile(id)) })
}

//export nvmlDeviceGetGpuInstanceById
func nvmlDeviceGetGpuInstanceById(device handle, id uint32, instance *handle) status {
	return readHandle(device, instance, func(d nvml.Device) (nvml.GpuInstance, nvml.Return) { return d.GetGpuInstanceById(int(id)) })
}

// gpuInstanceInfo is nvmlGpuInstanceInfo_t.
type gpuInstanceInfo struct {
	device    handle
	id        uint32
	profileID uint32 `c:"profileId"`
	placement nvml.GpuInstancePlacement
}

//export nvmlGpuInstanceGetInfo
func nvmlGpuInstanceGetInfo(instance handle, info unsafe.Pointer) status {
	return read(instance, info, func(in nvml.GpuInstance) (gpuInstanceInfo, nvml.Return) {
		have, ret := in.GetInfo()
		if ret != nvml.SUCCESS {
			return gpuInstanceInfo{}, ret
		}
		return gpuInstanceInfo{device: process.handles.handleOf(have.Device), id: have.Id, profileID: have.ProfileId, placement: have.Placement}, ret
	})
}

//export nvmlGpuInstanceDestroy
func nvmlGpuInstanceDestroy(instance handle) status {
	return set(instance, func(in nvml.GpuInstance) nvml.Return {
		ret := in.Destroy()
		if ret == nvml.SUCCESS {
			process.handles.drop(in)
		}
		return ret
	})
}

//export nvmlGpuInstanceGetComputeInstanceProfileInfo
func nvmlGpuInstanceGetComputeInstanceProfileInfo(instance handle, profile, engines uint32, info unsafe.Pointer) status {
	return read(instance, info, func(in nvml.GpuInstance) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
		return in.GetComputeInstanceProfileInfo(int(profile), int(engines))
	})
}

//export nvmlGpuInstanceGetComputeInstanceProfileInfoV
func nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance handle, profile, engines uint32, info unsafe.Pointer) status {
	get := func(in nvmlsim.VersionedInstance) (nvml.ComputeInstanceProfileInfo_v3, nvml.Return) {
		return in.ComputeInstanceProfileInfo_v3(int(profile), int(engines))
	}
	if ret := readVersion(instance, info, 3, get); ret != wrongVersion {
		return ret
	}
	return readVersion(instance, info, 2, func(in nvmlsim.VersionedInstance) (nvml.ComputeInstanceProfileInfo_v2, nvml.Return) {
		have, ret := get(in)
		return nvml.ComputeInstanceProfileInfo_v2{
			Version: versionOf[nvml.ComputeInstanceProfileInfo_v2](2), Id: have.Id, SliceCount: have.SliceCount, InstanceCount: have.InstanceCount,
			MultiprocessorCount: have.MultiprocessorCount, SharedCopyEngineCount: have.SharedCopyEngineCount,
			SharedDecoderCount: have.SharedDecoderCount, SharedEncoderCount: have.SharedEncoderCount,
			SharedJpegCount: have.SharedJpegCount, SharedOfaCount: have.SharedOfaCount, Name: have.Name,
		}, ret
	})
}

//export nvmlGpuInstanceGetComputeInstanceRemainingCapacity
func nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance handle, id uint32, count *uint32) status {
	return readNumber(instance, count, func(in nvml.GpuInstance) (int, nvml.Return) {
		return in.GetComputeInstanceRemainingCapacity(computeProfile(id))
	})
}

//export nvmlGpuInstanceGetComputeInstancePossiblePlacements
func nvmlGpuInstanceGetComputeInstancePossiblePlacements(instance handle, id uint32, to unsafe.Pointer, count *uint32) status {
	return readAll(instance, to, count, func(in nvml.GpuInstance) ([]nvml.ComputeInstancePlacement, nvml.Return) {
		return in.GetComputeInstancePossiblePlacements(computeProfile(id))
	})
}

//export nvmlGpuInstanceCreateComputeInstance
func nvmlGpuInstanceCreateComputeInstance(instance handle, id uint32, compute *handle) status {
	return readHandle(instance, compute, func(in nvml.GpuInstance) (nvml.ComputeInstance, nvml.Return) {
		return in.CreateComputeInstance(computeProfile(id))
	})
}

//export nvmlGpuInstanceCreateComputeInstanceWithPlacement
func nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance handle, id uint32, placement unsafe.Pointer, compute *handle) status {
	return readHandle(instance, compute, func(in nvml.GpuInstance) (nvml.ComputeInstance, nvml.Return) {
		return in.CreateComputeInstanceWithPlacement(computeProfile(id), (*nvml.ComputeInstancePlacement)(placement))
	})
}

//export nvmlGpuInstanceGetComputeInstances
func nvmlGpuInstanceGetComputeInstances(instance handle, id uint32, computes, count unsafe.Pointer) status {
	return listHandles(instance, computes, count, func(in nvml.GpuInstance) ([]nvml.ComputeInstance, nvml.Return) {
		return in.GetComputeInstances(computeProfile(id))
	})
}

//export nvmlGpuInstanceGetComputeInstanceById
func nvmlGpuInstanceGetComputeInstanceById(instance handle, id uint32, compute *handle) status {
	return readHandle(instance, compute, func(in nvml.GpuInstance) (nvml.ComputeInstance, nvml.Return) {
		return in.GetComputeInstanceById(int(id))
	})
}

// computeInstanceInfo is nvmlComputeInstanceInfo_t. Version 1 ends before the placement.
type computeInstanceInfo struct {
	device, gpuInstance handle
	id                  uint32
	profileID           uint32 `c:"profileId"`
	placement           nvml.ComputeInstancePlacement
}

// readComputeInstance stores the facts of a compute instance, without or with its placement.
func readComputeInstance(compute handle, to unsafe.Pointer, placement bool) status {
	ci, ret := object[nvml.ComputeInstance](compute, to)
	if ret != 0 {
		return ret
	}
	have, code := ci.GetInfo()
	if code != nvml.SUCCESS {
		return status(code)
	}
	info := (*computeInstanceInfo)(to)
	info.device, info.gpuInstance = process.handles.handleOf(have.Device), process.handles.handleOf(have.GpuInstance)
	info.id, info.profileID = have.Id, have.ProfileId
	if placement {
		info.placement = have.Placement
	}
	return 0
}

//export nvmlComputeInstanceGetInfo
func nvmlComputeInstanceGetInfo(compute handle, info unsafe.Pointer) status {
	return readComputeInstance(compute, info, false)
}

//export nvmlComputeInstanceGetInfo_v2
func nvmlComputeInstanceGetInfo_v2(compute handle, info unsafe.Pointer) status {
	return readComputeInstance(compute, info, true)
}

//export nvmlComputeInstanceDestroy
func nvmlComputeInstanceDestroy(compute handle) status {
	return set(compute, func(ci nvml.ComputeInstance) nvml.Return {
		ret := ci.Destroy()
		if ret == nvml.SUCCESS {
			process.handles.drop(ci)
		}
		if mig, ok := ci.(nvmlsim.MIGDevice); ok && ret == nvml.SUCCESS {
			process.handles.drop(mig.MIGDevice())
		}
		return ret
	})
}
