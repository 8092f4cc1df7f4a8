// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// functionsByRelease has the functions that drivers got since release 550, without the nvml
// of their names. Source: the change log of NVIDIA's NVML API Reference Guide. Functions of
// earlier releases are not listed, and each model's driver has them.
var functionsByRelease = map[int][]string{
	550: {
		"DeviceGetGpuFabricInfoV", "DeviceGetNumaNodeId", "DeviceGetProcessesUtilizationInfo",
		"DeviceGetVgpuHeterogeneousMode", "DeviceGetVgpuInstancesUtilizationInfo",
		"DeviceGetVgpuProcessesUtilizationInfo", "DeviceGetVgpuTypeCreatablePlacements",
		"DeviceGetVgpuTypeSupportedPlacements", "DeviceSetVgpuCapabilities", "DeviceSetVgpuHeterogeneousMode",
		"SystemGetConfComputeKeyRotationThresholdInfo", "SystemSetConfComputeKeyRotationThresholdInfo",
		"VgpuInstanceGetPlacementId",
	},
	555: {
		"DeviceGetCapabilities", "DeviceGetClockOffsets", "DeviceSetClockOffsets",
		"SystemGetConfComputeSettings",
	},
	560: {
		"SystemGetDriverBranch", "VgpuTypeGetBAR1Info",
	},
	565: {
		"DeviceGetCoolerInfo", "DeviceGetCurrentClockFreqs", "DeviceGetFanSpeedRPM", "DeviceGetPerformanceModes",
		"DeviceGetPlatformInfo", "VgpuInstanceGetRuntimeStateSize",
	},
	570: {
		"DeviceGetDramEncryptionMode", "DeviceGetMarginTemperature", "DeviceGetNvlinkBwMode",
		"DeviceGetNvlinkSupportedBwModes", "DevicePowerSmoothingActivatePresetProfile",
		"DevicePowerSmoothingSetState", "DevicePowerSmoothingUpdatePresetProfileParam",
		"DeviceSetDramEncryptionMode", "DeviceSetNvlinkBwMode",
	},
	575: {
		"DeviceGetHandleByUUIDV", "GpuInstanceGetActiveVgpus", "GpuInstanceGetCreatableVgpus",
		"GpuInstanceGetVgpuHeterogeneousMode", "GpuInstanceGetVgpuSchedulerLog",
		"GpuInstanceGetVgpuSchedulerState", "GpuInstanceGetVgpuTypeCreatablePlacements",
		"GpuInstanceSetVgpuHeterogeneousMode", "GpuInstanceSetVgpuSchedulerState", "SystemEventSetCreate",
		"SystemEventSetFree", "SystemEventSetWait", "SystemRegisterEvents",
		"VgpuTypeGetMaxInstancesPerGpuInstance",
	},
	580: {
		"DeviceGetAddressingMode", "DeviceGetGpuInstanceProfileInfoByIdV", "DeviceGetHostname_v1",
		"DeviceGetNvLinkInfo", "DeviceGetPdi", "DeviceGetPowerMizerMode_v1", "DeviceGetRemappedRows_v2",
		"DeviceGetRepairStatus", "DeviceGetSramUniqueUncorrectedEccErrorCounts", "DeviceReadWritePRM_v1",
		"DeviceSetHostname_v1", "DeviceSetPowerMizerMode_v1", "DeviceSetRusdSettings_v1",
		"DeviceWorkloadPowerProfileUpdateProfiles_v1",
	},
	590: {
		"DeviceGetUnrepairableMemoryFlag_v1",
	},
	595: {
		"DeviceGetBBXTimeData_v1", "DeviceGetVgpuSchedulerLog_v2", "DeviceGetVgpuSchedulerState_v2",
		"DeviceReadPRMCounters_v1", "DeviceSetVgpuSchedulerState_v2", "DeviceVgpuForceGspUnload",
		"GpuInstanceGetVgpuSchedulerLog_v2", "GpuInstanceGetVgpuSchedulerState_v2",
		"GpuInstanceSetVgpuSchedulerState_v2",
	},
	610: {
		"DeviceGetAccountingStats_v2", "DevicePerfMetricsGetSamples_v1", "SystemGetCPER_v1",
	},
	615: {
		"DeviceGetAdaptiveTgpModeInfo_v1", "DeviceGetBankRemapperStatus_v1", "DeviceGetGpuFabricInfo_v4",
		"DeviceGetMemoryLimits_v1", "DeviceGetNvLinkTelemetrySamples_v1", "DeviceSetAdaptiveTgpMode_v1",
		"DeviceSetMemoryLimits_v1", "DeviceSetNvlinkBwModeAsync_v1", "EventSetGetContextCount_v1",
		"EventSetGetContextData_v1", "EventSetGetContextInfo_v1",
		"EventSetGetGpuOperationalEventContextLegacyXid_v1", "EventSetRegisterGpuOperationalEvents_v1",
		"EventSetWait_v3",
	},
}

// release returns the release of a driver: 570 for version 570.124.06.
func release(driverVersion string) int {
	number, _, _ := strings.Cut(driverVersion, ".")
	n, _ := strconv.Atoi(number)
	return n
}

// missingFunctions returns the functions of NVML that the model's driver lacks. Names are
// without nvml. A field of the model decides over the release: a recorded machine may have a
// function of a later release.
func (m *Model) missingFunctions() map[string]bool {
	missing := map[string]bool{}
	for first, functions := range functionsByRelease {
		for _, name := range functions {
			missing[name] = first > release(m.DriverVersion)
		}
	}
	missing["DeviceSetMemoryLimits_v1"] = m.MemoryLimits == ""
	missing[memoryLimitsCall] = m.MemoryLimits == ""
	// A function is of the driver: one kind with an answer or another code shows it.
	shown := map[string]bool{}
	for _, kind := range m.Kinds {
		for name, code := range kind.refusals() {
			if code == nvml.ERROR_FUNCTION_NOT_FOUND {
				missing[name] = true
			} else {
				shown[name] = true
			}
		}
		if kind.AddressingMode != "" {
			shown["DeviceGetAddressingMode"] = true
		}
	}
	for name := range shown {
		missing[name] = false
	}
	return missing
}
