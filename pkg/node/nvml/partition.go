// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MIG reads the MIG mode, profiles and partitions of the GPU at the address. Like
// the other operations, it returns [gpu.ErrNotFound] if the node has no such GPU.
// Other errors are the same as from Snapshot.
func (l *Library) MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error) {
	return onGPU(ctx, l, address, "read the MIG partitions of", func(device nvml.Device) (gpu.MIG, error) {
		memory, err := memoryOf(device)
		if err != nil {
			return gpu.MIG{}, err
		}
		g := gpu.GPU{MemoryBytes: memory}
		err = readMIG(nil, device, &g)
		return g.MIG, err
	})
}

// CreatePartition creates a GPU instance of the profile, and the compute instance
// that spans it. start is the first memory slice of the GPU instance. It uses either
// instance if that exists. If the compute instance cannot be created,
// CreatePartition destroys the GPU instance that it created. The error wraps
// [gpu.ErrNotFound] if the GPU has no such profile or placement, and
// [gpu.ErrNoCapacity] if the memory or the slices are in use.
func (l *Library) CreatePartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) (gpu.Partition, error) {
	operation := fmt.Sprintf("create %s@%d on", profile, start)
	return onGPU(ctx, l, address, operation, func(device nvml.Device) (gpu.Partition, error) {
		at, err := findPlace(device, profile, start)
		if err != nil {
			return gpu.Partition{}, err
		}
		instance, err := at.instance(device)
		if err != nil {
			return gpu.Partition{}, err
		}
		undo := func() error { return nil }
		if instance == nil {
			var ret nvml.Return
			instance, ret = device.CreateGpuInstanceWithPlacement(&at.info, &at.placement)
			if err := check("create the GPU instance", ret); err != nil {
				return gpu.Partition{}, err
			}
			undo = func() error { return destroyInstance(instance) }
		}
		p, err := at.span(instance)
		if err != nil {
			return gpu.Partition{}, errors.Join(err, undo())
		}
		p.Profile = profile
		return p, nil
	})
}

// DestroyPartition destroys the GPU instance of the profile, after the compute
// instances in it. start is the first memory slice of the GPU instance. It succeeds
// if there is none. The error wraps [gpu.ErrInUse] if a process uses the instance.
func (l *Library) DestroyPartition(ctx context.Context, address gpu.PCIAddress, profile gpu.Profile, start int) error {
	operation := fmt.Sprintf("destroy %s@%d on", profile, start)
	_, err := onGPU(ctx, l, address, operation, func(device nvml.Device) (struct{}, error) {
		current, _, ret := device.GetMigMode()
		if err := required("read its MIG mode", ret); err != nil {
			return struct{}{}, err
		}
		if current != nvml.DEVICE_MIG_ENABLE {
			return struct{}{}, nil
		}
		at, err := findPlace(device, profile, start)
		if err != nil {
			return struct{}{}, err
		}
		instance, err := at.instance(device)
		if err != nil || instance == nil {
			return struct{}{}, err
		}
		return struct{}{}, destroyInstance(instance)
	})
	return err
}

// place is a profile and one of its possible placements.
type place struct {
	info      nvml.GpuInstanceProfileInfo
	placement nvml.GpuInstancePlacement
}

func findPlace(device nvml.Device, profile gpu.Profile, start int) (place, error) {
	memory, err := memoryOf(device)
	if err != nil {
		return place{}, err
	}
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		suffix, known := profileSuffixes[number]
		if !known || suffix != profile.Media {
			continue
		}
		info, ret := device.GetGpuInstanceProfileInfo(number)
		present, err := optional(fmt.Sprintf("read MIG profile %d", number), ret)
		if err != nil {
			return place{}, err
		}
		if !present || int(info.SliceCount) != profile.Slices || memoryGB(info.MemorySizeMB, memory) != profile.MemoryGB {
			continue
		}
		placements, ret := device.GetGpuInstancePossiblePlacements(&info)
		if err := required(fmt.Sprintf("read the placements of MIG profile %d", number), ret); err != nil {
			return place{}, err
		}
		for _, p := range placements {
			if int(p.Start) == start {
				return place{info: info, placement: p}, nil
			}
		}
	}
	return place{}, fmt.Errorf("%w: the GPU has no such profile or placement; nvidia-smi mig -lgipp lists them", gpu.ErrNotFound)
}

// instance returns the GPU instance at the place, or nil.
func (p place) instance(device nvml.Device) (nvml.GpuInstance, error) {
	instances, ret := device.GetGpuInstances(&p.info)
	if err := required("list its MIG instances", ret); err != nil {
		return nil, err
	}
	for _, instance := range instances {
		is, ret := instance.GetInfo()
		if err := required("read a MIG instance", ret); err != nil {
			return nil, err
		}
		if is.Placement == p.placement {
			return instance, nil
		}
	}
	return nil, nil
}

// span returns the partition with the compute instance that spans the GPU instance.
// It creates that compute instance if it does not exist.
func (p place) span(instance nvml.GpuInstance) (gpu.Partition, error) {
	is, ret := instance.GetInfo()
	if err := check("read the GPU instance", ret); err != nil {
		return gpu.Partition{}, err
	}
	info, err := spanningProfile(instance, p.info.SliceCount)
	if err != nil {
		return gpu.Partition{}, err
	}
	there, ret := instance.GetComputeInstances(&info)
	if err := check("list the compute instances", ret); err != nil {
		return gpu.Partition{}, err
	}
	var compute nvml.ComputeInstance
	undo := func() error { return nil }
	if len(there) > 0 {
		compute = there[0]
	} else {
		compute, ret = instance.CreateComputeInstance(&info)
		if err := check("create the compute instance", ret); err != nil {
			return gpu.Partition{}, err
		}
		undo = func() error { return check("destroy the compute instance", compute.Destroy()) }
	}
	cs, ret := compute.GetInfo()
	if err := check("read the compute instance", ret); err != nil {
		return gpu.Partition{}, errors.Join(err, undo())
	}
	uuid, ret := cs.Device.GetUUID()
	if err := check("read the UUID of the MIG device", ret); err != nil {
		return gpu.Partition{}, errors.Join(err, undo())
	}
	return gpu.Partition{Placement: placement(p.placement), UUID: uuid, GPUInstanceID: int(is.Id), ComputeInstanceID: int(cs.Id)}, nil
}

// spanningProfile returns the compute instance profile with all slices of a GPU
// instance. NVML has variants with the same slices: REV1 of one slice, and NVL of seven,
// which an A100 does not have. They have larger numbers, so the first match is the plain
// profile (kubernetes-sigs/dra-driver-nvidia-gpu#1480).
func spanningProfile(instance nvml.GpuInstance, slices uint32) (nvml.ComputeInstanceProfileInfo, error) {
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		present, err := optional(fmt.Sprintf("read compute instance profile %d", number), ret)
		if err != nil {
			return info, err
		}
		if present && info.SliceCount == slices {
			return info, nil
		}
	}
	return nvml.ComputeInstanceProfileInfo{}, fmt.Errorf("find the compute instance profile of %d slices: %w", slices, gpu.ErrNotFound)
}

// destroyInstance destroys a GPU instance and its compute instances.
func destroyInstance(instance nvml.GpuInstance) error {
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		present, err := optional(fmt.Sprintf("read compute instance profile %d", number), ret)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		computes, ret := instance.GetComputeInstances(&info)
		if err := check("list the compute instances", ret); err != nil {
			return err
		}
		for _, compute := range computes {
			if err := check("destroy the compute instance", compute.Destroy()); err != nil {
				return err
			}
		}
	}
	return check("destroy the GPU instance", instance.Destroy())
}

func memoryOf(device nvml.Device) (uint64, error) {
	memory, ret := device.GetMemoryInfo()
	return memory.Total, required("read its memory", ret)
}
