// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "github.com/NVIDIA/go-nvml/pkg/nvml/mock"

// notSimulated holds what the handles embed. The vendor's interfaces have more than
// 700 methods, of which this driver calls a few dozen. Each type of the simulator
// embeds the vendor's mock, which panics with the method's name if a method is
// called that the type does not implement. A test finds such calls in the sources.
type notSimulated struct {
	device   mock.Device
	instance mock.GpuInstance
}

// isSimulated reports whether a method of nvml.Interface is simulated. For a method
// that calls the method of a handle, the latter counts. The list is not read by
// reflection: a program that looks up methods keeps all methods of all its types.
func isSimulated(method string) bool {
	switch method {
	case
		"ComputeInstanceDestroy", "ComputeInstanceGetInfo",
		"DeviceCreateGpuInstance", "DeviceCreateGpuInstanceWithPlacement", "DeviceGetAddressingMode",
		"DeviceGetArchitecture", "DeviceGetAttributes", "DeviceGetBAR1MemoryInfo", "DeviceGetBrand",
		"DeviceGetClockInfo", "DeviceGetComputeInstanceId", "DeviceGetComputeMode", "DeviceGetComputeRunningProcesses", "DeviceGetCount",
		"DeviceGetCudaComputeCapability", "DeviceGetCurrentClocksEventReasons", "DeviceGetDeviceHandleFromMigDeviceHandle", "DeviceGetEccMode",
		"DeviceGetFieldValues", "DeviceGetGpuFabricInfo", "DeviceGetGpuFabricInfoV", "DeviceGetGpuFabricInfo_v4", "DeviceGetGpuInstanceById",
		"DeviceGetGpuInstanceId", "DeviceGetGpuInstancePossiblePlacements", "DeviceGetGpuInstanceProfileInfo",
		"DeviceGetGpuInstanceProfileInfoByIdV", "DeviceGetGpuInstanceProfileInfoV",
		"DeviceGetGpuInstanceRemainingCapacity", "DeviceGetGpuInstances", "DeviceGetGraphicsRunningProcesses",
		"DeviceGetHandleByIndex", "DeviceGetHandleByPciBusId", "DeviceGetHandleBySerial", "DeviceGetHandleByUUID",
		"DeviceGetIndex", "DeviceGetMPSComputeRunningProcesses", "DeviceGetMaxClockInfo", "DeviceGetMaxMigDeviceCount", "DeviceGetMemoryInfo",
		"DeviceGetMemoryInfo_v2", "DeviceGetMemoryLimits_v1", "DeviceGetMigDeviceHandleByIndex", "DeviceGetMigMode", "DeviceGetMinorNumber",
		"DeviceGetName", "DeviceGetNumGpuCores", "DeviceGetNumaNodeId", "DeviceGetNvLinkCapability",
		"DeviceGetNvLinkRemoteDeviceType", "DeviceGetNvLinkRemotePciInfo", "DeviceGetNvLinkState",
		"DeviceGetNvLinkVersion", "DeviceGetP2PStatus", "DeviceGetPciInfo", "DeviceGetPciInfoExt",
		"DeviceGetPersistenceMode", "DeviceGetPowerUsage", "DeviceGetProcessUtilization", "DeviceGetSerial", "DeviceGetSupportedEventTypes",
		"DeviceGetTemperature", "DeviceGetUtilizationRates",
		"DeviceGetTopologyCommonAncestor", "DeviceGetTotalEccErrors", "DeviceGetTotalEnergyConsumption", "DeviceGetUUID", "DeviceGetVirtualizationMode",
		"DeviceIsMigDeviceHandle", "DeviceRegisterEvents", "DeviceSetComputeMode", "DeviceSetEccMode",
		"DeviceSetMemoryLimits_v1", "DeviceSetMigMode", "DeviceSetPersistenceMode",
		"ErrorString", "GetExcludedDeviceCount", "Init", "InitWithFlags", "Shutdown",
		"EventSetCreate", "EventSetFree", "EventSetWait",
		"GpuInstanceCreateComputeInstance", "GpuInstanceCreateComputeInstanceWithPlacement", "GpuInstanceDestroy",
		"GpuInstanceGetComputeInstanceById", "GpuInstanceGetComputeInstancePossiblePlacements",
		"GpuInstanceGetComputeInstanceProfileInfo", "GpuInstanceGetComputeInstanceProfileInfoV", "GpuInstanceGetComputeInstanceRemainingCapacity",
		"GpuInstanceGetComputeInstances", "GpuInstanceGetInfo",
		"SystemGetCudaDriverVersion", "SystemGetCudaDriverVersion_v2", "SystemGetDriverVersion",
		"SystemGetNVMLVersion", "SystemGetProcessName":
		return true
	}
	return false
}
