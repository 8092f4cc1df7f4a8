// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The part of MIG that a GPU and its MIG devices answer: mode, profiles,
// handles. What happens to instances is in mig_instance.go.

func migMode(on bool) int {
	if on {
		return nvml.DEVICE_MIG_ENABLE
	}
	return nvml.DEVICE_MIG_DISABLE
}

func (d device) GetMigMode() (int, int, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetMigMode")
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	if c.spec.kind.MIG == nil {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return migMode(c.gpu.MIGMode), migMode(c.gpu.MIGPending), nvml.SUCCESS
}

// SetMigMode returns (activation status, return code). A GPU with instances
// refuses; one with processes takes the mode for later and activates nothing
// (IN_USE); one whose mode needs a reset waits for it (RESET_REQUIRED).
func (d device) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	activation := nvml.SUCCESS
	ret := d.set("DeviceSetMigMode", func(c call) nvml.Return {
		if c.spec.kind.MIG == nil {
			return nvml.ERROR_NOT_SUPPORTED
		}
		if mode != nvml.DEVICE_MIG_ENABLE && mode != nvml.DEVICE_MIG_DISABLE {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		on := mode == nvml.DEVICE_MIG_ENABLE
		if c.gpu.MIGMode != on && len(c.gpu.Instances) > 0 {
			return nvml.ERROR_IN_USE
		}
		c.gpu.MIGPending = on
		switch {
		case c.gpu.MIGMode == on:
		case len(c.gpu.Processes) > 0:
			activation = nvml.ERROR_IN_USE
		case c.spec.kind.MIG.NeedsReset:
			activation = nvml.ERROR_RESET_REQUIRED
		default:
			c.gpu.MIGMode = on
		}
		return nvml.SUCCESS
	})
	if ret != nvml.SUCCESS {
		return ret, ret
	}
	return activation, nvml.SUCCESS
}

func (d device) IsMigDeviceHandle() (bool, nvml.Return) {
	_, ret := d.enter("DeviceIsMigDeviceHandle")
	return ret == nvml.SUCCESS && d.mig != "", ret
}

// GetMaxMigDeviceCount is 0 while MIG is off.
func (d device) GetMaxMigDeviceCount() (int, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetMaxMigDeviceCount")
	if ret != nvml.SUCCESS || c.spec.kind.MIG == nil || !c.gpu.MIGMode {
		return 0, ret
	}
	return c.spec.kind.MIG.ComputeSlices, nvml.SUCCESS
}

func (d device) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetMigDeviceHandleByIndex")
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case c.spec.kind.MIG == nil:
		return nil, nvml.ERROR_NOT_SUPPORTED
	case index < 0:
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	uuids := migUUIDs(c.gpu)
	if index >= len(uuids) {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return d.library.device(d.index, uuids[index]), nvml.SUCCESS
}

func (d device) GetDeviceHandleFromMigDeviceHandle() (nvml.Device, nvml.Return) {
	_, ret := d.enter("DeviceGetDeviceHandleFromMigDeviceHandle")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if d.mig == "" {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return d.library.device(d.index, ""), nvml.SUCCESS
}

func (d device) GetGpuInstanceId() (int, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := d.enterMIG("DeviceGetGpuInstanceId")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return c.instance.ID, nvml.SUCCESS
}

func (d device) GetComputeInstanceId() (int, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := d.enterMIG("DeviceGetComputeInstanceId")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return c.compute.ID, nvml.SUCCESS
}

// enterProfile begins a call about a profile, with or without MIG mode on.
// The info is one that GetGpuInstanceProfileInfo gave; its Id decides.
func (d device) enterProfile(method string, info *nvml.GpuInstanceProfileInfo) (call, *profileSpec, nvml.Return) {
	c, ret := d.enterGPU(method)
	switch {
	case ret != nvml.SUCCESS:
		return call{}, nil, ret
	case info == nil:
		return call{}, nil, nvml.ERROR_INVALID_ARGUMENT
	case c.spec.kind.MIG == nil:
		return call{}, nil, nvml.ERROR_NOT_SUPPORTED
	}
	p := c.spec.profileByID(info.Id)
	if p == nil {
		return call{}, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return c, p, nvml.SUCCESS
}

// GetGpuInstanceProfileInfo returns the profile with a profile number. Instances
// and further calls refer to the profile by the Id in the result.
func (d device) GetGpuInstanceProfileInfo(profile int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	c, p, ret := d.enterProfileNumber("DeviceGetGpuInstanceProfileInfo", profile)
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceProfileInfo{}, ret
	}
	info := c.gpuProfileInfo(p)
	return nvml.GpuInstanceProfileInfo{
		Id:                  info.Id,
		IsP2pSupported:      info.Capabilities & nvml.GPU_INSTANCE_PROFILE_CAPS_P2P,
		SliceCount:          info.SliceCount,
		InstanceCount:       info.InstanceCount,
		MultiprocessorCount: info.MultiprocessorCount,
		CopyEngineCount:     info.CopyEngineCount,
		DecoderCount:        info.DecoderCount,
		EncoderCount:        info.EncoderCount,
		JpegCount:           info.JpegCount,
		OfaCount:            info.OfaCount,
		MemorySizeMB:        info.MemorySizeMB,
	}, nvml.SUCCESS
}

// enterProfileNumber begins a call about the profile with a profile number.
func (d device) enterProfileNumber(method string, profile int) (call, *profileSpec, nvml.Return) {
	c, ret := d.enterGPU(method)
	if ret != nvml.SUCCESS {
		return call{}, nil, ret
	}
	if profile < 0 || profile >= nvml.GPU_INSTANCE_PROFILE_COUNT {
		return call{}, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	p := c.spec.profiles[profile]
	if p == nil {
		return call{}, nil, nvml.ERROR_NOT_SUPPORTED
	}
	return c, p, nvml.SUCCESS
}

func (d device) GetGpuInstancePossiblePlacements(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
	_, p, ret := d.enterProfile("DeviceGetGpuInstancePossiblePlacements", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var placements []nvml.GpuInstancePlacement
	for _, start := range p.Starts {
		placements = append(placements, nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(p.Size)})
	}
	return placements, nvml.SUCCESS
}

// enterInstances begins a call about instances, which needs MIG mode on.
func (d device) enterInstances(method string, info *nvml.GpuInstanceProfileInfo) (call, *profileSpec, nvml.Return) {
	c, p, ret := d.enterProfile(method, info)
	if ret == nvml.SUCCESS && !c.gpu.MIGMode {
		return call{}, nil, nvml.ERROR_NOT_SUPPORTED
	}
	return c, p, ret
}

func (d device) GetGpuInstanceRemainingCapacity(info *nvml.GpuInstanceProfileInfo) (int, nvml.Return) {
	c, p, ret := d.enterInstances("DeviceGetGpuInstanceRemainingCapacity", info)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return remainingCapacity(c.spec, c.gpu.Instances, p), nvml.SUCCESS
}

func (d device) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	c, p, ret := d.enterInstances("DeviceGetGpuInstances", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	handles := []nvml.GpuInstance{}
	for _, in := range c.gpu.Instances {
		if in.Profile == p.Profile {
			handles = append(handles, d.instance(in.Serial))
		}
	}
	return handles, nvml.SUCCESS
}

func (d device) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := d.enterGPU("DeviceGetGpuInstanceById")
	switch {
	case ret != nvml.SUCCESS:
		return nil, ret
	case c.spec.kind.MIG == nil || !c.gpu.MIGMode:
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	for _, in := range c.gpu.Instances {
		if in.ID == id {
			return d.instance(in.Serial), nvml.SUCCESS
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// CreateGpuInstance takes the first placement that is free.
func (d device) CreateGpuInstance(info *nvml.GpuInstanceProfileInfo) (nvml.GpuInstance, nvml.Return) {
	return d.create("DeviceCreateGpuInstance", info, nil)
}

func (d device) CreateGpuInstanceWithPlacement(info *nvml.GpuInstanceProfileInfo, placement *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	if placement == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return d.create("DeviceCreateGpuInstanceWithPlacement", info, placement)
}

func (d device) create(method string, info *nvml.GpuInstanceProfileInfo, placement *nvml.GpuInstancePlacement) (nvml.GpuInstance, nvml.Return) {
	_, p, ret := d.enterInstances(method, info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	starts := p.Starts
	if placement != nil {
		if !p.admits(*placement) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		starts = []int{int(placement.Start)}
	}
	handle := d.instance(0)
	ret = d.library.change(func(st *State) nvml.Return {
		c, ret := d.resolve(st)
		if ret != nvml.SUCCESS {
			return ret
		}
		if !c.gpu.MIGMode {
			return nvml.ERROR_NOT_SUPPORTED
		}
		for _, start := range starts {
			if fits(c.spec, c.gpu.Instances, p, start) {
				st.Serial++
				handle.serial = st.Serial
				c.gpu.Instances = withInstance(c.gpu.Instances, c.spec.newInstance(c.gpu.Instances, p, start, st.Serial))
				return nvml.SUCCESS
			}
		}
		return nvml.ERROR_INSUFFICIENT_RESOURCES
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return handle, nvml.SUCCESS
}
