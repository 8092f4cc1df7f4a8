// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The functions of events.

//export nvmlEventSetCreate
func nvmlEventSetCreate(set *handle) status {
	lib, ret := begin(unsafe.Pointer(set))
	if ret != 0 {
		return ret
	}
	return storeHandle[nvml.EventSet](set)(lib.EventSetCreate())
}

//export nvmlEventSetFree
func nvmlEventSetFree(set handle) status {
	events, ret := object[nvml.EventSet](set)
	if ret != 0 {
		return ret
	}
	process.handles.drop(events)
	return status(events.Free())
}

//export nvmlDeviceGetSupportedEventTypes
func nvmlDeviceGetSupportedEventTypes(device handle, types *uint64) status {
	return read(device, unsafe.Pointer(types), nvml.Device.GetSupportedEventTypes)
}

//export nvmlDeviceRegisterEvents
func nvmlDeviceRegisterEvents(device handle, types uint64, set handle) status {
	d, ret := object[nvml.Device](device)
	if ret != 0 {
		return ret
	}
	events, ret := object[nvml.EventSet](set)
	if ret != 0 {
		return ret
	}
	return status(d.RegisterEvents(types, events))
}

// eventData is nvmlEventData_t. Version 1 ends before the instances.
type eventData struct {
	device          handle
	eventType       uint64
	data            uint64 `c:"eventData"`
	gpuInstance     uint32 `c:"gpuInstanceId"`
	computeInstance uint32 `c:"computeInstanceId"`
}

// waitForEvent stores the next event of a set, without or with its instances.
func waitForEvent(set handle, to unsafe.Pointer, timeoutMillis uint32, instances bool) status {
	events, ret := object[nvml.EventSet](set, to)
	if ret != 0 {
		return ret
	}
	event, code := events.Wait(timeoutMillis)
	if code != nvml.SUCCESS {
		return status(code)
	}
	data := (*eventData)(to)
	data.device, data.eventType, data.data = process.handles.handleOf(event.Device), event.EventType, event.EventData
	if instances {
		data.gpuInstance, data.computeInstance = event.GpuInstanceId, event.ComputeInstanceId
	}
	return 0
}

//export nvmlEventSetWait
func nvmlEventSetWait(set handle, event unsafe.Pointer, timeoutMillis uint32) status {
	return waitForEvent(set, event, timeoutMillis, false)
}

//export nvmlEventSetWait_v2
func nvmlEventSetWait_v2(set handle, event unsafe.Pointer, timeoutMillis uint32) status {
	return waitForEvent(set, event, timeoutMillis, true)
}
