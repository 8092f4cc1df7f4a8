// SPDX-License-Identifier: Apache-2.0

package gpu

import "errors"

// The sentinel errors of the driver. Adapters map a vendor's codes to them once,
// at the edge. The layers above wrap them with the operation and the object
// ("create 1g.10gb@2 on GPU-…: already in use") and test them with [errors.Is].
var (
	// ErrNotFound: the named GPU, device, profile or record does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInUse: another claim or process holds it. Waiting may help.
	ErrInUse = errors.New("already in use")
	// ErrNoCapacity: the hardware has no capacity left for it.
	ErrNoCapacity = errors.New("no capacity left")
	// ErrNotSupported: this GPU, driver or release cannot do it. Waiting does
	// not help.
	ErrNotSupported = errors.New("not supported")
	// ErrInvalid: the request itself is wrong and must be changed.
	ErrInvalid = errors.New("invalid")
	// ErrNotReady: the driver is not loaded, the GPUs are not scanned yet, or the
	// MPS supervisor does not run. Waiting helps.
	ErrNotReady = errors.New("not ready")
	// ErrLost: the GPU fell off the bus or stopped answering.
	ErrLost = errors.New("GPU lost")
	// ErrUnhealthy: the GPU has a fault and must be repaired, usually by a reset,
	// before new claims get it.
	ErrUnhealthy = errors.New("GPU unhealthy")
	// ErrPermission: this process lacks the rights for it.
	ErrPermission = errors.New("permission denied")
	// ErrTimeout: the hardware did not answer in time. Trying again may help.
	ErrTimeout = errors.New("timed out")
	// ErrCorrupt: stored data do not match their checksum or cannot be read.
	ErrCorrupt = errors.New("corrupt")
)

// Gone reports whether an operation failed because the node has no such GPU, or no longer.
func Gone(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrNotFound) }

// Transient reports whether the same call may succeed later.
func Transient(err error) bool {
	return errors.Is(err, ErrInUse) || errors.Is(err, ErrNotReady) || errors.Is(err, ErrTimeout)
}
