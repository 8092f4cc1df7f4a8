// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The functions of the node as a whole.

//export nvmlInit
func nvmlInit() status { return status(process.init()) }

//export nvmlInit_v2
func nvmlInit_v2() status { return status(process.init()) }

//export nvmlInitWithFlags
func nvmlInitWithFlags(_ uint32) status { return status(process.init()) }

//export nvmlShutdown
func nvmlShutdown() status { return status(process.shutdown()) }

//export nvmlErrorString
func nvmlErrorString(code status) *C.char { return process.texts.cString(errorText(nvml.Return(code))) }

// texts has the texts to which callers have pointers until the program ends.
type texts struct {
	mu    sync.Mutex
	known map[string]*C.char
}

func (t *texts) cString(text string) *C.char {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]*C.char{}
	}
	if t.known[text] == nil {
		t.known[text] = C.CString(text)
	}
	return t.known[text]
}

// errorText returns NVIDIA's text for a return code.
func errorText(code nvml.Return) string {
	switch code {
	case nvml.SUCCESS:
		return "Success"
	case nvml.ERROR_UNINITIALIZED:
		return "Uninitialized"
	case nvml.ERROR_INVALID_ARGUMENT:
		return "Invalid Argument"
	case nvml.ERROR_NOT_SUPPORTED:
		return "Not Supported"
	case nvml.ERROR_NO_PERMISSION:
		return "Insufficient Permissions"
	case nvml.ERROR_NOT_FOUND:
		return "Not Found"
	case nvml.ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded"
	case nvml.ERROR_TIMEOUT:
		return "Timeout"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "Function Not Found"
	case nvml.ERROR_GPU_IS_LOST:
		return "GPU is lost"
	case nvml.ERROR_RESET_REQUIRED:
		return "GPU requires reset"
	case nvml.ERROR_OPERATING_SYSTEM:
		return "The operating system has blocked the request"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "RM has detected an NVML/RM version mismatch."
	case nvml.ERROR_IN_USE:
		return "In use by another client"
	case nvml.ERROR_MEMORY:
		return "Insufficient Memory"
	case nvml.ERROR_NO_DATA:
		return "No data"
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return "Insufficient Resources"
	case nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return "Argument version mismatch"
	}
	return "Unknown Error"
}

// readNodeText and readNodeNumber store a fact about the node.
func readNodeText(to *C.char, length uint32, method func(nvml.Interface) (string, nvml.Return)) status {
	lib, ret := begin(unsafe.Pointer(to))
	if ret != 0 {
		return ret
	}
	return storeText(to, length)(method(lib))
}

func readNodeNumber[N number](to *N, method func(nvml.Interface) (int, nvml.Return)) status {
	lib, ret := begin(unsafe.Pointer(to))
	if ret != 0 {
		return ret
	}
	return storeNumber[int](to)(method(lib))
}

//export nvmlSystemGetDriverVersion
func nvmlSystemGetDriverVersion(version *C.char, length uint32) status {
	return readNodeText(version, length, nvml.Interface.SystemGetDriverVersion)
}

//export nvmlSystemGetNVMLVersion
func nvmlSystemGetNVMLVersion(version *C.char, length uint32) status {
	return readNodeText(version, length, nvml.Interface.SystemGetNVMLVersion)
}

//export nvmlSystemGetCudaDriverVersion
func nvmlSystemGetCudaDriverVersion(version *int32) status {
	return readNodeNumber(version, nvml.Interface.SystemGetCudaDriverVersion)
}

//export nvmlSystemGetCudaDriverVersion_v2
func nvmlSystemGetCudaDriverVersion_v2(version *int32) status {
	return readNodeNumber(version, nvml.Interface.SystemGetCudaDriverVersion_v2)
}

//export nvmlSystemGetProcessName
func nvmlSystemGetProcessName(pid uint32, name *C.char, length uint32) status {
	return readNodeText(name, length, func(lib nvml.Interface) (string, nvml.Return) { return lib.SystemGetProcessName(int(pid)) })
}

//export nvmlGetExcludedDeviceCount
func nvmlGetExcludedDeviceCount(count *uint32) status {
	return readNodeNumber(count, nvml.Interface.GetExcludedDeviceCount)
}

//export nvmlDeviceGetCount
func nvmlDeviceGetCount(count *uint32) status { return nvmlDeviceGetCount_v2(count) }

//export nvmlDeviceGetCount_v2
func nvmlDeviceGetCount_v2(count *uint32) status {
	return readNodeNumber(count, nvml.Interface.DeviceGetCount)
}

//export nvmlDeviceGetHandleByIndex
func nvmlDeviceGetHandleByIndex(index uint32, device *handle) status {
	return nvmlDeviceGetHandleByIndex_v2(index, device)
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index uint32, device *handle) status {
	lib, ret := begin(unsafe.Pointer(device))
	if ret != 0 {
		return ret
	}
	return storeHandle[nvml.Device](device)(lib.DeviceGetHandleByIndex(int(index)))
}

// byText is a function that finds a GPU by a text.
func byText(text *C.char, device *handle, find func(nvml.Interface, string) (nvml.Device, nvml.Return)) status {
	lib, ret := begin(unsafe.Pointer(text), unsafe.Pointer(device))
	if ret != 0 {
		return ret
	}
	return storeHandle[nvml.Device](device)(find(lib, C.GoString(text)))
}

//export nvmlDeviceGetHandleByUUID
func nvmlDeviceGetHandleByUUID(uuid *C.char, device *handle) status {
	return byText(uuid, device, nvml.Interface.DeviceGetHandleByUUID)
}

//export nvmlDeviceGetHandleBySerial
func nvmlDeviceGetHandleBySerial(serial *C.char, device *handle) status {
	return byText(serial, device, nvml.Interface.DeviceGetHandleBySerial)
}

//export nvmlDeviceGetHandleByPciBusId
func nvmlDeviceGetHandleByPciBusId(address *C.char, device *handle) status {
	return nvmlDeviceGetHandleByPciBusId_v2(address, device)
}

//export nvmlDeviceGetHandleByPciBusId_v2
func nvmlDeviceGetHandleByPciBusId_v2(address *C.char, device *handle) status {
	return byText(address, device, nvml.Interface.DeviceGetHandleByPciBusId)
}
