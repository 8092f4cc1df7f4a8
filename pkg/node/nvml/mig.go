// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// profileSuffixes holds the suffixes of profile names by NVML's profile number. They
// distinguish profiles with the same slices and memory.
var profileSuffixes = map[int]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_6_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_7_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_8_SLICE:        "",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   "",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

// readMIG reads the MIG mode, the profiles and the partitions. The mode is required,
// and so are the partitions if it is on: the memory of a partition that the driver
// does not know would be allocated twice.
func readMIG(_ nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	current, pending, ret := device.GetMigMode()
	if errors.Is(sentinelOf(ret), gpu.ErrNotSupported) {
		return nil
	}
	if err := required("read its MIG mode", ret); err != nil {
		return err
	}
	g.MIG = gpu.MIG{
		Capable:        true,
		Enabled:        current == nvml.DEVICE_MIG_ENABLE,
		PendingEnabled: pending == nvml.DEVICE_MIG_ENABLE,
	}
	var found []nvml.GpuInstanceProfileInfo
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		suffix, known := profileSuffixes[number]
		if !known {
			continue
		}
		info, ret := device.GetGpuInstanceProfileInfo(number)
		// A driver that does not know the number returns an error.
		present, err := optional(fmt.Sprintf("read MIG profile %d", number), ret)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		profile, err := readProfile(device, number, info)
		if err != nil {
			return err
		}
		profile.Profile = gpu.Profile{
			Slices:   int(info.SliceCount),
			MemoryGB: memoryGB(info.MemorySizeMB, g.MemoryBytes),
			Media:    suffix,
		}
		g.MIG.Profiles = append(g.MIG.Profiles, profile)
		found = append(found, info)
	}
	if !g.MIG.Enabled {
		return nil
	}
	var err error
	g.MIG.Partitions, err = readPartitions(device, g.MIG.Profiles, found)
	return err
}

func readProfile(device nvml.Device, number int, info nvml.GpuInstanceProfileInfo) (gpu.ProfileInfo, error) {
	profile := gpu.ProfileInfo{
		ID:              number,
		MemoryBytes:     info.MemorySizeMB << 20,
		Multiprocessors: int(info.MultiprocessorCount),
		ComputeSlices:   int(info.SliceCount),
		CopyEngines:     int(info.CopyEngineCount),
		Decoders:        int(info.DecoderCount),
		Encoders:        int(info.EncoderCount),
		JPEGs:           int(info.JpegCount),
		OFAs:            int(info.OfaCount),
		MaxInstances:    int(info.InstanceCount),
	}
	placements, ret := device.GetGpuInstancePossiblePlacements(&info)
	present, err := optional(fmt.Sprintf("read the placements of MIG profile %d", number), ret)
	if err != nil || !present {
		return profile, err
	}
	for _, p := range placements {
		profile.Placements = append(profile.Placements, placement(p))
	}
	slices.SortFunc(profile.Placements, func(a, b gpu.Placement) int { return cmp.Compare(a.Start, b.Start) })
	return profile, nil
}

// memoryGB returns the number before "gb" in a profile's name: the profile's share of
// the GPU's memory, rounded up to eighths, times the memory in whole GiB.
func memoryGB(profileMiB, gpuBytes uint64) int {
	if gpuBytes == 0 {
		return 0
	}
	const gib = 1 << 30
	eighths := math.Ceil(float64(profileMiB<<20) / float64(gpuBytes) * 8)
	return int(math.Round(eighths / 8 * math.Ceil(float64(gpuBytes)/gib)))
}

func placement(p nvml.GpuInstancePlacement) gpu.Placement {
	return gpu.Placement{Start: int(p.Start), Size: int(p.Size)}
}

// migDevice is the compute instance of a MIG device.
type migDevice struct {
	computeInstance int
	uuid            string
}

// readPartitions lists the GPU instances with the compute instances in them:
// one entry for each compute instance, and one without a UUID for an instance
// that has none.
func readPartitions(device nvml.Device, profiles []gpu.ProfileInfo, infos []nvml.GpuInstanceProfileInfo) ([]gpu.Partition, error) {
	devices, err := readMIGDevices(device)
	if err != nil {
		return nil, err
	}
	var partitions []gpu.Partition
	for i, info := range infos {
		instances, ret := device.GetGpuInstances(&info)
		if err := required(fmt.Sprintf("list its MIG instances of profile %s", profiles[i].Profile), ret); err != nil {
			return nil, err
		}
		for _, instance := range instances {
			is, ret := instance.GetInfo()
			if err := required(fmt.Sprintf("read a MIG instance of profile %s", profiles[i].Profile), ret); err != nil {
				return nil, err
			}
			p := gpu.Partition{Profile: profiles[i].Profile, Placement: placement(is.Placement), GPUInstanceID: int(is.Id)}
			if len(devices[p.GPUInstanceID]) == 0 {
				partitions = append(partitions, p)
			}
			for _, d := range devices[p.GPUInstanceID] {
				p.UUID, p.ComputeInstanceID = d.uuid, d.computeInstance
				partitions = append(partitions, p)
			}
		}
	}
	slices.SortFunc(partitions, func(a, b gpu.Partition) int {
		return cmp.Or(
			cmp.Compare(a.Placement.Start, b.Placement.Start),
			cmp.Compare(a.GPUInstanceID, b.GPUInstanceID),
			cmp.Compare(a.ComputeInstanceID, b.ComputeInstanceID),
		)
	})
	return partitions, nil
}

// readMIGDevices lists the MIG devices by their GPU instance.
func readMIGDevices(device nvml.Device) (map[int][]migDevice, error) {
	count, ret := device.GetMaxMigDeviceCount()
	if err := required("count its MIG devices", ret); err != nil {
		return nil, err
	}
	devices := map[int][]migDevice{}
	for i := range count {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // the numbering has gaps
		}
		if err := required(fmt.Sprintf("get MIG device %d", i), ret); err != nil {
			return nil, err
		}
		var d migDevice
		instance, ret := mig.GetGpuInstanceId()
		if err := required(fmt.Sprintf("read the GPU instance of MIG device %d", i), ret); err != nil {
			return nil, err
		}
		d.computeInstance, ret = mig.GetComputeInstanceId()
		if err := required(fmt.Sprintf("read the compute instance of MIG device %d", i), ret); err != nil {
			return nil, err
		}
		d.uuid, ret = mig.GetUUID()
		if err := required(fmt.Sprintf("read the UUID of MIG device %d", i), ret); err != nil {
			return nil, err
		}
		devices[instance] = append(devices[instance], d)
	}
	return devices, nil
}
