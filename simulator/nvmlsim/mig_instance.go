// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// gpuInstance is the handle of a GPU instance. The serial distinguishes it from a
// later instance in the same place.
type gpuInstance struct {
	*mock.GpuInstance
	device device
	serial uint64
}

var _ nvml.GpuInstance = gpuInstance{}

func (d device) instance(serial uint64) gpuInstance {
	return gpuInstance{GpuInstance: &d.library.notSimulated.instance, device: d, serial: serial}
}

// computeInstance is the handle of a compute instance.
type computeInstance struct {
	instance gpuInstance
	uuid     string
}

var _ nvml.ComputeInstance = computeInstance{}

// enter begins a call of a GPU instance. The handle of a destroyed instance is
// invalid.
func (h gpuInstance) enter(method string) (call, nvml.Return) {
	c, ret := h.device.enter(method)
	if ret != nvml.SUCCESS {
		return call{}, ret
	}
	return h.find(c)
}

func (h gpuInstance) find(c call) (call, nvml.Return) {
	i := slices.IndexFunc(c.gpu.Instances, func(in Instance) bool { return in.Serial == h.serial })
	if i < 0 {
		return call{}, nvml.ERROR_INVALID_ARGUMENT
	}
	c.instance = &c.gpu.Instances[i]
	return c, nvml.SUCCESS
}

// change runs a change of the GPU instance.
func (h gpuInstance) change(change func(*State, call) nvml.Return) nvml.Return {
	return h.device.library.change(func(st *State) nvml.Return {
		c, ret := h.device.resolve(st)
		if ret != nvml.SUCCESS {
			return ret
		}
		if c, ret = h.find(c); ret != nvml.SUCCESS {
			return ret
		}
		return change(st, c)
	})
}

func (h gpuInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	c, ret := h.enter("GpuInstanceGetInfo")
	if ret != nvml.SUCCESS {
		return nvml.GpuInstanceInfo{}, ret
	}
	p := c.spec.profiles[c.instance.Profile]
	return nvml.GpuInstanceInfo{
		Device:    h.device,
		Id:        uint32(c.instance.ID),
		ProfileId: uint32(p.ID),
		Placement: nvml.GpuInstancePlacement{Start: uint32(c.instance.Start), Size: uint32(p.Size)},
	}, nvml.SUCCESS
}

// Destroy is refused while the instance has compute instances, and so while a
// process uses it.
func (h gpuInstance) Destroy() nvml.Return {
	if _, ret := h.enter("GpuInstanceDestroy"); ret != nvml.SUCCESS {
		return ret
	}
	return h.change(func(_ *State, c call) nvml.Return {
		if len(c.instance.Compute) > 0 {
			return nvml.ERROR_IN_USE
		}
		c.gpu.Instances = slices.DeleteFunc(c.gpu.Instances, func(in Instance) bool { return in.Serial == h.serial })
		return nvml.SUCCESS
	})
}

func (h gpuInstance) GetComputeInstanceProfileInfo(profile, engineProfile int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	c, cp, ret := h.enterProfileNumber("GpuInstanceGetComputeInstanceProfileInfo", profile, engineProfile)
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceProfileInfo{}, ret
	}
	info := c.computeProfileInfo(cp)
	return nvml.ComputeInstanceProfileInfo{
		Id:                    info.Id,
		SliceCount:            info.SliceCount,
		InstanceCount:         info.InstanceCount,
		MultiprocessorCount:   info.MultiprocessorCount,
		SharedCopyEngineCount: info.SharedCopyEngineCount,
		SharedDecoderCount:    info.SharedDecoderCount,
		SharedEncoderCount:    info.SharedEncoderCount,
		SharedJpegCount:       info.SharedJpegCount,
		SharedOfaCount:        info.SharedOfaCount,
	}, nvml.SUCCESS
}

// enterProfileNumber begins a call about the compute instance profile with a number.
func (h gpuInstance) enterProfileNumber(method string, profile, engineProfile int) (call, *computeProfile, nvml.Return) {
	c, ret := h.enter(method)
	if ret != nvml.SUCCESS {
		return call{}, nil, ret
	}
	if profile < 0 || profile >= nvml.COMPUTE_INSTANCE_PROFILE_COUNT || engineProfile != nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED {
		return call{}, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	cp := c.spec.computeProfile(c.spec.profiles[c.instance.Profile], profile)
	if cp == nil {
		return call{}, nil, nvml.ERROR_NOT_SUPPORTED
	}
	return c, cp, nvml.SUCCESS
}

// enterProfile begins a call about a compute instance profile.
func (h gpuInstance) enterProfile(method string, info *nvml.ComputeInstanceProfileInfo) (call, *computeProfile, nvml.Return) {
	c, ret := h.enter(method)
	switch {
	case ret != nvml.SUCCESS:
		return call{}, nil, ret
	case info == nil:
		return call{}, nil, nvml.ERROR_INVALID_ARGUMENT
	}
	cp := c.spec.computeProfile(c.spec.profiles[c.instance.Profile], int(info.Id))
	if cp == nil {
		return call{}, nil, nvml.ERROR_NOT_SUPPORTED
	}
	return c, cp, nvml.SUCCESS
}

func (h gpuInstance) GetComputeInstancePossiblePlacements(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstancePlacement, nvml.Return) {
	_, cp, ret := h.enterProfile("GpuInstanceGetComputeInstancePossiblePlacements", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	var placements []nvml.ComputeInstancePlacement
	for _, start := range cp.starts() {
		placements = append(placements, nvml.ComputeInstancePlacement{Start: uint32(start), Size: uint32(cp.slices)})
	}
	return placements, nvml.SUCCESS
}

func (h gpuInstance) GetComputeInstanceRemainingCapacity(info *nvml.ComputeInstanceProfileInfo) (int, nvml.Return) {
	c, cp, ret := h.enterProfile("GpuInstanceGetComputeInstanceRemainingCapacity", info)
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	n := 0
	for _, start := range cp.starts() {
		if c.spec.computeFits(c.instance, cp, start) {
			n++
		}
	}
	return n, nvml.SUCCESS
}

func (h gpuInstance) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	c, cp, ret := h.enterProfile("GpuInstanceGetComputeInstances", info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	handles := []nvml.ComputeInstance{}
	for _, ci := range c.instance.Compute {
		if ci.Profile == cp.number {
			handles = append(handles, computeInstance{instance: h, uuid: ci.UUID})
		}
	}
	return handles, nvml.SUCCESS
}

func (h gpuInstance) GetComputeInstanceById(id int) (nvml.ComputeInstance, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := h.enter("GpuInstanceGetComputeInstanceById")
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	for _, ci := range c.instance.Compute {
		if ci.ID == id {
			return computeInstance{instance: h, uuid: ci.UUID}, nvml.SUCCESS
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// CreateComputeInstance takes the first place that is free.
func (h gpuInstance) CreateComputeInstance(info *nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstance, nvml.Return) {
	return h.create("GpuInstanceCreateComputeInstance", info, nil)
}

func (h gpuInstance) CreateComputeInstanceWithPlacement(info *nvml.ComputeInstanceProfileInfo, placement *nvml.ComputeInstancePlacement) (nvml.ComputeInstance, nvml.Return) {
	if placement == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return h.create("GpuInstanceCreateComputeInstanceWithPlacement", info, placement)
}

func (h gpuInstance) create(method string, info *nvml.ComputeInstanceProfileInfo, placement *nvml.ComputeInstancePlacement) (nvml.ComputeInstance, nvml.Return) {
	_, cp, ret := h.enterProfile(method, info)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	starts := cp.starts()
	if placement != nil {
		if int(placement.Size) != cp.slices || !slices.Contains(starts, int(placement.Start)) {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
		starts = []int{int(placement.Start)}
	}
	handle := computeInstance{instance: h}
	ret = h.change(func(st *State, c call) nvml.Return {
		for _, start := range starts {
			if !c.spec.computeFits(c.instance, cp, start) {
				continue
			}
			st.Serial++
			handle.uuid = "MIG-" + derivedUUID(st.BootID, c.spec.uuid, strconv.FormatUint(st.Serial, 10))
			c.instance.Compute = append(c.instance.Compute, ComputeInstance{ID: computeID(c.instance), Profile: cp.number, Start: start, UUID: handle.uuid})
			slices.SortFunc(c.instance.Compute, func(a, b ComputeInstance) int { return cmp.Compare(a.ID, b.ID) })
			return nvml.SUCCESS
		}
		return nvml.ERROR_INSUFFICIENT_RESOURCES
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return handle, nvml.SUCCESS
}

// find returns the call with the compute instance of the handle.
func (h computeInstance) find(c call) (call, nvml.Return) {
	i := slices.IndexFunc(c.instance.Compute, func(ci ComputeInstance) bool { return ci.UUID == h.uuid })
	if i < 0 {
		return call{}, nvml.ERROR_INVALID_ARGUMENT
	}
	c.compute = &c.instance.Compute[i]
	return c, nvml.SUCCESS
}

func (h computeInstance) enter(method string) (call, nvml.Return) {
	c, ret := h.instance.enter(method)
	if ret != nvml.SUCCESS {
		return call{}, ret
	}
	return h.find(c)
}

func (h computeInstance) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	c, ret := h.enter("ComputeInstanceGetInfo")
	if ret != nvml.SUCCESS {
		return nvml.ComputeInstanceInfo{}, ret
	}
	cp := c.spec.computeProfile(c.spec.profiles[c.instance.Profile], c.compute.Profile)
	return nvml.ComputeInstanceInfo{
		Device:      h.MIGDevice(),
		GpuInstance: h.instance,
		Id:          uint32(c.compute.ID),
		ProfileId:   uint32(cp.number),
		Placement:   nvml.ComputeInstancePlacement{Start: uint32(c.compute.Start), Size: uint32(cp.slices)},
	}, nvml.SUCCESS
}

// Destroy is refused while a process uses the MIG device.
func (h computeInstance) Destroy() nvml.Return {
	if _, ret := h.enter("ComputeInstanceDestroy"); ret != nvml.SUCCESS {
		return ret
	}
	return h.instance.change(func(_ *State, c call) nvml.Return {
		c, ret := h.find(c)
		if ret != nvml.SUCCESS {
			return ret
		}
		if len(processesOn(c.gpu, h.uuid)) > 0 {
			return nvml.ERROR_IN_USE
		}
		c.instance.Compute = slices.DeleteFunc(c.instance.Compute, func(ci ComputeInstance) bool { return ci.UUID == h.uuid })
		return nvml.SUCCESS
	})
}
