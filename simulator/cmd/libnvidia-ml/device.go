// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The functions of a GPU or a MIG device.

//export nvmlDeviceGetName
func nvmlDeviceGetName(device handle, name *C.char, length uint32) status {
	return readText(device, name, length, nvml.Device.GetName)
}

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device handle, uuid *C.char, length uint32) status {
	return readText(device, uuid, length, nvml.Device.GetUUID)
}

//export nvmlDeviceGetSerial
func nvmlDeviceGetSerial(device handle, serial *C.char, length uint32) status {
	return readText(device, serial, length, nvml.Device.GetSerial)
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device handle, index *uint32) status {
	return readNumber(device, index, nvml.Device.GetIndex)
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device handle, minor *uint32) status {
	return readNumber(device, minor, nvml.Device.GetMinorNumber)
}

//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device handle, brand *uint32) status {
	return readNumber(device, brand, nvml.Device.GetBrand)
}

//export nvmlDeviceGetArchitecture
func nvmlDeviceGetArchitecture(device handle, architecture *uint32) status {
	return readNumber(device, architecture, nvml.Device.GetArchitecture)
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device handle, major, minor *int32) status {
	return readTwo(device, major, minor, nvml.Device.GetCudaComputeCapability)
}

//export nvmlDeviceGetNumGpuCores
func nvmlDeviceGetNumGpuCores(device handle, cores *uint32) status {
	return readNumber(device, cores, nvml.Device.GetNumGpuCores)
}

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device handle, memory unsafe.Pointer) status {
	return read(device, memory, nvml.Device.GetMemoryInfo)
}

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device handle, memory unsafe.Pointer) status {
	return readVersion(device, memory, 2, nvml.Device.GetMemoryInfo_v2)
}

//export nvmlDeviceGetBAR1MemoryInfo
func nvmlDeviceGetBAR1MemoryInfo(device handle, memory unsafe.Pointer) status {
	return read(device, memory, nvml.Device.GetBAR1MemoryInfo)
}

//export nvmlDeviceGetAttributes
func nvmlDeviceGetAttributes(device handle, attributes unsafe.Pointer) status {
	return nvmlDeviceGetAttributes_v2(device, attributes)
}

//export nvmlDeviceGetAttributes_v2
func nvmlDeviceGetAttributes_v2(device handle, attributes unsafe.Pointer) status {
	return read(device, attributes, nvml.Device.GetAttributes)
}

// olderPCIInfo is nvmlPciInfo_t as it was before version 3, with the short address at its
// start. Version 1 ended before the subsystem.
type olderPCIInfo struct {
	busID                                   [16]int8
	domain, bus, device, id, subsystem      uint32
	reserved0, reserved1, reserved2, unused uint32
}

// readOlderPCIInfo stores version 1 or 2.
func readOlderPCIInfo(device handle, to unsafe.Pointer, version int, method func(nvml.Device) (nvml.PciInfo, nvml.Return)) status {
	d, ret := object[nvml.Device](device, to)
	if ret != 0 {
		return ret
	}
	info, code := method(d)
	if code != nvml.SUCCESS {
		return status(code)
	}
	older := (*olderPCIInfo)(to)
	older.busID = info.BusIdLegacy
	older.domain, older.bus, older.device, older.id = info.Domain, info.Bus, info.Device, info.PciDeviceId
	if version > 1 {
		older.subsystem = info.PciSubSystemId
	}
	return 0
}

//export nvmlDeviceGetPciInfo
func nvmlDeviceGetPciInfo(device handle, info unsafe.Pointer) status {
	return readOlderPCIInfo(device, info, 1, nvml.Device.GetPciInfo)
}

//export nvmlDeviceGetPciInfo_v2
func nvmlDeviceGetPciInfo_v2(device handle, info unsafe.Pointer) status {
	return readOlderPCIInfo(device, info, 2, nvml.Device.GetPciInfo)
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device handle, info unsafe.Pointer) status {
	return read(device, info, nvml.Device.GetPciInfo)
}

//export nvmlDeviceGetPciInfoExt
func nvmlDeviceGetPciInfoExt(device handle, info unsafe.Pointer) status {
	return readVersion(device, info, 1, nvml.Device.GetPciInfoExt)
}

//export nvmlDeviceGetUtilizationRates
func nvmlDeviceGetUtilizationRates(device handle, utilization unsafe.Pointer) status {
	return read(device, utilization, nvml.Device.GetUtilizationRates)
}

//export nvmlDeviceGetTemperature
func nvmlDeviceGetTemperature(device handle, sensor uint32, celsius *uint32) status {
	return read(device, unsafe.Pointer(celsius), func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperature(nvml.TemperatureSensors(sensor)) })
}

//export nvmlDeviceGetPowerUsage
func nvmlDeviceGetPowerUsage(device handle, milliwatts *uint32) status {
	return read(device, unsafe.Pointer(milliwatts), nvml.Device.GetPowerUsage)
}

//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device handle, node *uint32) status {
	return readNumber(device, node, nvml.Device.GetNumaNodeId)
}

//export nvmlDeviceGetClockInfo
func nvmlDeviceGetClockInfo(device handle, kind uint32, clock *uint32) status {
	return read(device, unsafe.Pointer(clock), func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(nvml.ClockType(kind)) })
}

//export nvmlDeviceGetMaxClockInfo
func nvmlDeviceGetMaxClockInfo(device handle, kind uint32, clock *uint32) status {
	return read(device, unsafe.Pointer(clock), func(d nvml.Device) (uint32, nvml.Return) { return d.GetMaxClockInfo(nvml.ClockType(kind)) })
}

//export nvmlDeviceGetCurrentClocksEventReasons
func nvmlDeviceGetCurrentClocksEventReasons(device handle, reasons *uint64) status {
	return read(device, unsafe.Pointer(reasons), nvml.Device.GetCurrentClocksEventReasons)
}

//export nvmlDeviceGetTotalEnergyConsumption
func nvmlDeviceGetTotalEnergyConsumption(device handle, energy *uint64) status {
	return read(device, unsafe.Pointer(energy), nvml.Device.GetTotalEnergyConsumption)
}

//export nvmlDeviceGetEccMode
func nvmlDeviceGetEccMode(device handle, current, pending *uint32) status {
	return readTwo(device, current, pending, nvml.Device.GetEccMode)
}

//export nvmlDeviceSetEccMode
func nvmlDeviceSetEccMode(device handle, mode uint32) status {
	return set(device, func(d nvml.Device) nvml.Return { return d.SetEccMode(nvml.EnableState(mode)) })
}

// set calls a method that stores nothing.
func set[T any](h handle, method func(T) nvml.Return) status {
	o, ret := object[T](h)
	if ret != 0 {
		return ret
	}
	return status(method(o))
}

//export nvmlDeviceGetTotalEccErrors
func nvmlDeviceGetTotalEccErrors(device handle, kind, counter uint32, errors *uint64) status {
	return read(device, unsafe.Pointer(errors), func(d nvml.Device) (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MemoryErrorType(kind), nvml.EccCounterType(counter))
	})
}

//export nvmlDeviceGetPersistenceMode
func nvmlDeviceGetPersistenceMode(device handle, mode *uint32) status {
	return readNumber(device, mode, nvml.Device.GetPersistenceMode)
}

//export nvmlDeviceSetPersistenceMode
func nvmlDeviceSetPersistenceMode(device handle, mode uint32) status {
	return set(device, func(d nvml.Device) nvml.Return { return d.SetPersistenceMode(nvml.EnableState(mode)) })
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device handle, mode *uint32) status {
	return readNumber(device, mode, nvml.Device.GetComputeMode)
}

//export nvmlDeviceSetComputeMode
func nvmlDeviceSetComputeMode(device handle, mode uint32) status {
	return set(device, func(d nvml.Device) nvml.Return { return d.SetComputeMode(nvml.ComputeMode(mode)) })
}

//export nvmlDeviceGetAddressingMode
func nvmlDeviceGetAddressingMode(device handle, mode unsafe.Pointer) status {
	return readVersion(device, mode, 1, nvml.Device.GetAddressingMode)
}

//export nvmlDeviceGetVirtualizationMode
func nvmlDeviceGetVirtualizationMode(device handle, mode *uint32) status {
	return readNumber(device, mode, nvml.Device.GetVirtualizationMode)
}

//export nvmlDeviceGetFieldValues
func nvmlDeviceGetFieldValues(device handle, count int32, values unsafe.Pointer) status {
	d, ret := object[nvml.Device](device, values)
	if ret != 0 {
		return ret
	}
	if count <= 0 {
		return invalid
	}
	return status(d.GetFieldValues(unsafe.Slice((*nvml.FieldValue)(values), count)))
}

//export nvmlDeviceSetMemoryLimits_v1
func nvmlDeviceSetMemoryLimits_v1(device handle, limits unsafe.Pointer) status {
	d, ret := object[nvml.Device](device, limits)
	if ret != 0 {
		return ret
	}
	want := (*nvml.SetMemoryLimits_v1)(limits)
	if want.NameSpace == nil {
		return invalid
	}
	folder := C.GoString((*C.char)(unsafe.Pointer(want.NameSpace)))
	return status(d.SetMemoryLimits_v1(folder, want.SoftLimit, want.HardLimit))
}

//export nvmlDeviceGetMemoryLimits_v1
func nvmlDeviceGetMemoryLimits_v1(device handle, limits unsafe.Pointer) status {
	d, ret := object[nvml.Device](device, limits)
	if ret != 0 {
		return ret
	}
	to := (*nvml.GetMemoryLimits_v1)(limits)
	if to.NameSpace == nil {
		return invalid
	}
	have, code := d.GetMemoryLimits_v1(C.GoString((*C.char)(unsafe.Pointer(to.NameSpace))))
	if code == nvml.SUCCESS {
		to.SoftLimit, to.HardLimit, to.CurrentUsed = have.SoftLimit, have.HardLimit, have.CurrentUsed
	}
	return status(code)
}
