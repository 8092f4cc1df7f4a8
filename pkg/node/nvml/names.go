// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// NVIDIA's DRA driver publishes the same names of brands and architectures, so
// selectors written for it match. A value without a name here is left out.

var brandNames = map[nvml.BrandType]string{
	nvml.BRAND_QUADRO:              "Quadro",
	nvml.BRAND_TESLA:               "Tesla",
	nvml.BRAND_NVS:                 "NVS",
	nvml.BRAND_GRID:                "Grid",
	nvml.BRAND_GEFORCE:             "GeForce",
	nvml.BRAND_TITAN:               "Titan",
	nvml.BRAND_NVIDIA_VAPPS:        "NvidiaVApps",
	nvml.BRAND_NVIDIA_VPC:          "NvidiaVPC",
	nvml.BRAND_NVIDIA_VCS:          "NvidiaVCS",
	nvml.BRAND_NVIDIA_VWS:          "NvidiaVWS",
	nvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming",
	nvml.BRAND_QUADRO_RTX:          "QuadroRTX",
	nvml.BRAND_NVIDIA_RTX:          "NvidiaRTX",
	nvml.BRAND_NVIDIA:              "Nvidia",
	nvml.BRAND_GEFORCE_RTX:         "GeForceRTX",
	nvml.BRAND_TITAN_RTX:           "TitanRTX",
}

var architectureNames = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER:    "Kepler",
	nvml.DEVICE_ARCH_MAXWELL:   "Maxwell",
	nvml.DEVICE_ARCH_PASCAL:    "Pascal",
	nvml.DEVICE_ARCH_VOLTA:     "Volta",
	nvml.DEVICE_ARCH_TURING:    "Turing",
	nvml.DEVICE_ARCH_AMPERE:    "Ampere",
	nvml.DEVICE_ARCH_ADA:       "Ada Lovelace",
	nvml.DEVICE_ARCH_HOPPER:    "Hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
	nvml.DEVICE_ARCH_RUBIN:     "Rubin",
}

var addressingModeNames = map[nvml.DeviceAddressingModeType]string{
	nvml.DEVICE_ADDRESSING_MODE_HMM:  "HMM",
	nvml.DEVICE_ADDRESSING_MODE_ATS:  "ATS",
	nvml.DEVICE_ADDRESSING_MODE_NONE: "None",
}

var computeModes = map[nvml.ComputeMode]gpu.ComputeMode{
	nvml.COMPUTEMODE_DEFAULT:    gpu.ComputeModeDefault,
	nvml.COMPUTEMODE_PROHIBITED: gpu.ComputeModeProhibited,
	// CUDA 4 split this mode off; neither mode allows two processes on the GPU.
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  gpu.ComputeModeExclusiveProcess,
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: gpu.ComputeModeExclusiveProcess,
}

var linkRemotes = map[nvml.IntNvLinkDeviceType]gpu.LinkRemote{
	nvml.NVLINK_DEVICE_TYPE_GPU:    gpu.RemoteGPU,
	nvml.NVLINK_DEVICE_TYPE_IBMNPU: gpu.RemoteCPU,
	nvml.NVLINK_DEVICE_TYPE_SWITCH: gpu.RemoteSwitch,
}

// coresPerMultiprocessor returns the FP32 cores of one SM, or 0 for an unknown
// compute capability. The source is the throughput table of the CUDA C++ programming
// guide.
func coresPerMultiprocessor(cc gpu.Version) int {
	switch {
	case cc.Major == 3:
		return 192
	case cc.Major == 5:
		return 128
	case cc.Major == 6 && cc.Minor == 0:
		return 64
	case cc.Major == 6:
		return 128
	case cc.Major == 7:
		return 64
	case cc.Major == 8 && cc.Minor == 0:
		return 64
	case cc.Major >= 8 && cc.Major <= 12:
		return 128
	default:
		return 0
	}
}

// linkVersions holds the versions of NVLink. NVML numbers them in order, so an H100
// reports 6.
var linkVersions = map[nvml.NvlinkVersion]gpu.Version{
	nvml.NVLINK_VERSION_1_0: {Major: 1},
	nvml.NVLINK_VERSION_2_0: {Major: 2},
	nvml.NVLINK_VERSION_2_2: {Major: 2, Minor: 2},
	nvml.NVLINK_VERSION_3_0: {Major: 3},
	nvml.NVLINK_VERSION_3_1: {Major: 3, Minor: 1},
	nvml.NVLINK_VERSION_4_0: {Major: 4},
	nvml.NVLINK_VERSION_5_0: {Major: 5},
	nvml.NVLINK_VERSION_6_0: {Major: 6},
}
