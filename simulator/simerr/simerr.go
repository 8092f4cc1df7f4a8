// SPDX-License-Identifier: Apache-2.0

// Package simerr has the sentinel errors of the simulator's packages.
package simerr

import "errors"

// The callers wrap these with the operation and the object. Test them with [errors.Is].
var (
	// ErrNotFound: the named GPU, device, profile, process or file does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInUse: a process, an instance or another simulated node is in the way.
	ErrInUse = errors.New("already in use")
	// ErrNoCapacity: the hardware has no capacity left for it.
	ErrNoCapacity = errors.New("no capacity left")
	// ErrNotSupported: the model has no such hardware, or its driver cannot do it.
	ErrNotSupported = errors.New("not supported")
	// ErrInvalid: the request itself is wrong and must be changed.
	ErrInvalid = errors.New("invalid")
	// ErrNotReady: a daemon does not run, or the fabric is not ready.
	ErrNotReady = errors.New("not ready")
	// ErrLost: the GPU has fallen off the bus.
	ErrLost = errors.New("GPU lost")
	// ErrPermission: this process lacks the rights for it.
	ErrPermission = errors.New("permission denied")
	// ErrCorrupt: stored data cannot be read.
	ErrCorrupt = errors.New("corrupt")
	// ErrMismatch: another release of the simulator has made the node, or the folder has
	// another node than when it was opened.
	ErrMismatch = errors.New("mismatch")
)
