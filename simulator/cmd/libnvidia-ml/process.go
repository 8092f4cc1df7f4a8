// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The functions of processes.

// listProcesses stores a list of processes, in the struct of one of the versions.
func listProcesses[V any](device handle, count *uint32, to unsafe.Pointer, method func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return), convert func(nvml.ProcessInfo) V) status {
	d, ret := object[nvml.Device](device, unsafe.Pointer(count))
	if ret != 0 {
		return ret
	}
	list, code := method(d)
	if code != nvml.SUCCESS {
		return status(code)
	}
	if *count > 0 && to == nil {
		return invalid
	}
	return storeList((*V)(to), count, mapped(list, convert))
}

func version1(p nvml.ProcessInfo) nvml.ProcessInfo_v1 {
	return nvml.ProcessInfo_v1{Pid: p.Pid, UsedGpuMemory: p.UsedGpuMemory}
}

func version2(p nvml.ProcessInfo) nvml.ProcessInfo_v2 { return nvml.ProcessInfo_v2(p) }

func version3(p nvml.ProcessInfo) nvml.ProcessInfo { return p }

//export nvmlDeviceGetComputeRunningProcesses
func nvmlDeviceGetComputeRunningProcesses(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetComputeRunningProcesses, version1)
}

//export nvmlDeviceGetComputeRunningProcesses_v2
func nvmlDeviceGetComputeRunningProcesses_v2(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetComputeRunningProcesses, version2)
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetComputeRunningProcesses, version3)
}

//export nvmlDeviceGetGraphicsRunningProcesses
func nvmlDeviceGetGraphicsRunningProcesses(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetGraphicsRunningProcesses, version1)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v2
func nvmlDeviceGetGraphicsRunningProcesses_v2(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetGraphicsRunningProcesses, version2)
}

//export nvmlDeviceGetGraphicsRunningProcesses_v3
func nvmlDeviceGetGraphicsRunningProcesses_v3(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetGraphicsRunningProcesses, version3)
}

//export nvmlDeviceGetMPSComputeRunningProcesses
func nvmlDeviceGetMPSComputeRunningProcesses(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetMPSComputeRunningProcesses, version1)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v2
func nvmlDeviceGetMPSComputeRunningProcesses_v2(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetMPSComputeRunningProcesses, version2)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device handle, count *uint32, to unsafe.Pointer) status {
	return listProcesses(device, count, to, nvml.Device.GetMPSComputeRunningProcesses, version3)
}

//export nvmlDeviceGetProcessUtilization
func nvmlDeviceGetProcessUtilization(device handle, to unsafe.Pointer, count *uint32, lastSeen uint64) status {
	d, ret := object[nvml.Device](device, unsafe.Pointer(count))
	if ret != 0 {
		return ret
	}
	samples, code := d.GetProcessUtilization(lastSeen)
	if code != nvml.SUCCESS {
		return status(code)
	}
	if to == nil {
		*count = 0
	}
	return storeList((*nvml.ProcessUtilizationSample)(to), count, samples)
}
