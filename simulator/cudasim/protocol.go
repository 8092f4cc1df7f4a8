// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"errors"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// The operations of a [Request].
const (
	opInit  = "init"
	opAlloc = "alloc"
	opFree  = "free"
	opInfo  = "info"
)

// Request is a call of a process.
type Request struct {
	Op string `json:"op"`
	// Device is a CUDA ordinal.
	Device int    `json:"device,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
}

// Reply is the result of a call; one of its fields is set.
type Reply struct {
	Devices []Device `json:"devices,omitempty"`
	// UsedBytes that the process has allocated of the device.
	UsedBytes *uint64        `json:"usedBytes,omitempty"`
	Memory    *mpssim.Memory `json:"memory,omitempty"`
	Error     *mpssim.Error  `json:"error,omitempty"`
}

// Device is a device that a process has.
type Device struct {
	Ordinal     int    `json:"ordinal"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// Multiprocessors that the process sees.
	Multiprocessors int `json:"multiprocessors"`
}

// The errors that processes meet, by their names in cuda.h.
const (
	errInvalidValue      = "INVALID_VALUE"
	errOutOfMemory       = "OUT_OF_MEMORY"
	errNotInitialized    = "NOT_INITIALIZED"
	errDeviceUnavailable = "DEVICE_UNAVAILABLE"
	errNoDevice          = "NO_DEVICE"
	errInvalidDevice     = "INVALID_DEVICE"
	errNotPermitted      = "NOT_PERMITTED"
	errSystemNotReady    = "SYSTEM_NOT_READY"
	errUnknown           = "UNKNOWN"
)

var codes = map[string]int{
	errInvalidValue:      1,
	errOutOfMemory:       2,
	errNotInitialized:    3,
	errDeviceUnavailable: 46,
	errNoDevice:          100,
	errInvalidDevice:     101,
	errNotPermitted:      800,
	errSystemNotReady:    802,
	errUnknown:           999,
}

func fail(name string, format string, args ...any) *mpssim.Error {
	return &mpssim.Error{Name: name, Code: codes[name], Message: fmt.Sprintf(format, args...)}
}

// refusal is CUDA's error for a refusal of the simulated node.
func refusal(err error) *mpssim.Error {
	name := errUnknown
	switch {
	case errors.Is(err, simerr.ErrNoCapacity):
		name = errOutOfMemory
	case errors.Is(err, simerr.ErrInUse):
		name = errDeviceUnavailable
	case errors.Is(err, simerr.ErrNotReady):
		name = errSystemNotReady
	case errors.Is(err, simerr.ErrInvalid), errors.Is(err, simerr.ErrNotFound):
		// The GPU has entered MIG mode, or the MIG device is gone.
		name = errInvalidDevice
	}
	return fail(name, "%v", err)
}
