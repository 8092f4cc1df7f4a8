// SPDX-License-Identifier: Apache-2.0

package mpssim

import "fmt"

// The operations of a [Request].
const (
	opCommand = "command"
	opConnect = "connect"
	opAttach  = "attach"
	opAlloc   = "alloc"
	opFree    = "free"
	opInfo    = "info"
)

// Request is what the command line and clients send.
type Request struct {
	Op string `json:"op"`
	// Command with its arguments, of the operation "command".
	Command string `json:"command,omitempty"`
	// Protocol of the command: 2 for a line of the standard input, and 3 for the
	// arguments of the program.
	Protocol int `json:"protocol,omitempty"`
	// ActiveThreadPercentage and PinnedDeviceMemLimit are the client's
	// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.
	ActiveThreadPercentage string `json:"activeThreadPercentage,omitempty"`
	PinnedDeviceMemLimit   string `json:"pinnedDeviceMemLimit,omitempty"`
	// Token is the content of the server's file in /dev/shm.
	Token string `json:"token,omitempty"`
	// Device is a CUDA ordinal.
	Device int    `json:"device,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
}

// Reply is what the daemon answers; one of its fields is set.
type Reply struct {
	// Output of a command, and the exit status of the command line: with protocol 2,
	// which answers with words only, it is 0.
	Output *string `json:"output,omitempty"`
	Status int     `json:"status,omitempty"`
	// Waiting says what a client waits for.
	Waiting string `json:"waiting,omitempty"`
	// Server is the PID of the server, Shm its file in /dev/shm.
	Server int    `json:"server,omitempty"`
	Shm    string `json:"shm,omitempty"`
	// Client is what a client got.
	Client *Granted `json:"client,omitempty"`
	// UsedBytes of the device, after alloc and free.
	UsedBytes *uint64 `json:"usedBytes,omitempty"`
	Memory    *Memory `json:"memory,omitempty"`
	Error     *Error  `json:"error,omitempty"`
}

// Memory is the result of CUDA's cuMemGetInfo.
type Memory struct {
	TotalBytes uint64 `json:"totalBytes"`
	FreeBytes  uint64 `json:"freeBytes"`
}

// Granted is what a client got.
type Granted struct {
	Server                 int             `json:"server"`
	ActiveThreadPercentage float64         `json:"activeThreadPercentage"`
	Devices                []GrantedDevice `json:"devices"`
}

// GrantedDevice is a device that a client sees.
type GrantedDevice struct {
	Ordinal     int    `json:"ordinal"`
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// LimitBytes that the client can allocate of it; 0 for no limit.
	LimitBytes uint64 `json:"limitBytes"`
	// Multiprocessors that the client sees.
	Multiprocessors int `json:"multiprocessors"`
}

// Error is an error of CUDA's driver API.
type Error struct {
	// Name without CUDA_ERROR_.
	Name string `json:"name"`
	Code int    `json:"code"`
	// Message says why.
	Message string `json:"message"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("CUDA_ERROR_%s (%d): %s", e.Name, e.Code, e.Message)
}

func fail(name string, format string, args ...any) *Error {
	return &Error{Name: name, Code: codes[name], Message: fmt.Sprintf(format, args...)}
}

// The errors that clients meet, by their names in cuda.h.
const (
	errInvalidValue      = "INVALID_VALUE"
	errOutOfMemory       = "OUT_OF_MEMORY"
	errDeviceUnavailable = "DEVICE_UNAVAILABLE"
	errInvalidDevice     = "INVALID_DEVICE"
	errLaunchFailed      = "LAUNCH_FAILED"
	errNotPermitted      = "NOT_PERMITTED"
	errSystemNotReady    = "SYSTEM_NOT_READY"
	errConnectionFailed  = "MPS_CONNECTION_FAILED"
	errRPCFailure        = "MPS_RPC_FAILURE"
	errServerNotReady    = "MPS_SERVER_NOT_READY"
	errMaxClientsReached = "MPS_MAX_CLIENTS_REACHED"
	errClientTerminated  = "MPS_CLIENT_TERMINATED"
)

var codes = map[string]int{
	errInvalidValue:      1,
	errOutOfMemory:       2,
	errDeviceUnavailable: 46,
	errInvalidDevice:     101,
	errLaunchFailed:      719,
	errNotPermitted:      800,
	errSystemNotReady:    802,
	errConnectionFailed:  805,
	errRPCFailure:        806,
	errServerNotReady:    807,
	errMaxClientsReached: 808,
	errClientTerminated:  810,
}
