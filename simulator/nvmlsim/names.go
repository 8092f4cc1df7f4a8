// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// How a model spells NVML's enumerations.

var brands = map[string]nvml.BrandType{
	"Unknown":           nvml.BRAND_UNKNOWN,
	"Quadro":            nvml.BRAND_QUADRO,
	"Tesla":             nvml.BRAND_TESLA,
	"NVS":               nvml.BRAND_NVS,
	"Grid":              nvml.BRAND_GRID,
	"GeForce":           nvml.BRAND_GEFORCE,
	"Titan":             nvml.BRAND_TITAN,
	"NvidiaVApps":       nvml.BRAND_NVIDIA_VAPPS,
	"NvidiaVPC":         nvml.BRAND_NVIDIA_VPC,
	"NvidiaVCS":         nvml.BRAND_NVIDIA_VCS,
	"NvidiaVWS":         nvml.BRAND_NVIDIA_VWS,
	"NvidiaCloudGaming": nvml.BRAND_NVIDIA_CLOUD_GAMING,
	"QuadroRTX":         nvml.BRAND_QUADRO_RTX,
	"NvidiaRTX":         nvml.BRAND_NVIDIA_RTX,
	"Nvidia":            nvml.BRAND_NVIDIA,
	"GeForceRTX":        nvml.BRAND_GEFORCE_RTX,
	"TitanRTX":          nvml.BRAND_TITAN_RTX,
}

var architectures = map[string]nvml.DeviceArchitecture{
	"Kepler":       nvml.DEVICE_ARCH_KEPLER,
	"Maxwell":      nvml.DEVICE_ARCH_MAXWELL,
	"Pascal":       nvml.DEVICE_ARCH_PASCAL,
	"Volta":        nvml.DEVICE_ARCH_VOLTA,
	"Turing":       nvml.DEVICE_ARCH_TURING,
	"Ampere":       nvml.DEVICE_ARCH_AMPERE,
	"Ada Lovelace": nvml.DEVICE_ARCH_ADA,
	"Hopper":       nvml.DEVICE_ARCH_HOPPER,
	"Blackwell":    nvml.DEVICE_ARCH_BLACKWELL,
	"Rubin":        nvml.DEVICE_ARCH_RUBIN,
}

var addressingModes = map[string]nvml.DeviceAddressingModeType{
	"None": nvml.DEVICE_ADDRESSING_MODE_NONE,
	"HMM":  nvml.DEVICE_ADDRESSING_MODE_HMM,
	"ATS":  nvml.DEVICE_ADDRESSING_MODE_ATS,
}

var computeModes = map[string]nvml.ComputeMode{
	string(ComputeModeDefault):          nvml.COMPUTEMODE_DEFAULT,
	string(ComputeModeProhibited):       nvml.COMPUTEMODE_PROHIBITED,
	string(ComputeModeExclusiveProcess): nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
}

var nvlinkVersions = map[string]nvml.NvlinkVersion{
	"":    nvml.NVLINK_VERSION_INVALID,
	"1.0": nvml.NVLINK_VERSION_1_0,
	"2.0": nvml.NVLINK_VERSION_2_0,
	"2.2": nvml.NVLINK_VERSION_2_2,
	"3.0": nvml.NVLINK_VERSION_3_0,
	"3.1": nvml.NVLINK_VERSION_3_1,
	"4.0": nvml.NVLINK_VERSION_4_0,
	"5.0": nvml.NVLINK_VERSION_5_0,
	"6.0": nvml.NVLINK_VERSION_6_0,
}

var linkRemotes = map[linkRemote]nvml.IntNvLinkDeviceType{
	"":           nvml.NVLINK_DEVICE_TYPE_UNKNOWN,
	remoteGPU:    nvml.NVLINK_DEVICE_TYPE_GPU,
	remoteSwitch: nvml.NVLINK_DEVICE_TYPE_SWITCH,
	remoteCPU:    nvml.NVLINK_DEVICE_TYPE_IBMNPU,
}

// profileSlices holds the compute slices of NVML's GPU instance profiles.
var profileSlices = map[int]int{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE:        1,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE:        2,
	nvml.GPU_INSTANCE_PROFILE_3_SLICE:        3,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE:        4,
	nvml.GPU_INSTANCE_PROFILE_7_SLICE:        7,
	nvml.GPU_INSTANCE_PROFILE_8_SLICE:        8,
	nvml.GPU_INSTANCE_PROFILE_6_SLICE:        6,
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   1,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   2,
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   1,
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    1,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    2,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    4,
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  1,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  2,
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: 1,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: 2,
	nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX:    3,
}

// computeProfiles holds the compute slices of NVML's compute instance profiles by
// profile number.
var computeProfiles = []struct{ number, slices int }{
	{nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 1},
	{nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, 2},
	{nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE, 3},
	{nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 4},
	{nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE, 7},
	{nvml.COMPUTE_INSTANCE_PROFILE_8_SLICE, 8},
	{nvml.COMPUTE_INSTANCE_PROFILE_6_SLICE, 6},
	{nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1, 1},
	{nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL, 7},
}

// libraryDirs holds the directory of the driver's libraries on each platform. The
// empty platform is the default.
var libraryDirs = map[string]string{
	"":        "usr/lib/x86_64-linux-gnu",
	"x86_64":  "usr/lib/x86_64-linux-gnu",
	"aarch64": "usr/lib/aarch64-linux-gnu",
}
