// SPDX-License-Identifier: Apache-2.0

// Package nvml reads GPUs through NVIDIA's management library and hands them on
// as values of package gpu. It is the only caller of that API: return codes are
// mapped to the sentinel errors of package gpu here and nowhere else, and no type
// of the vendor's reaches a caller.
//
// The hardware is behind go-nvml's Interface, so a simulator that implements it
// is read by the very same code.
//
// Out of scope: what the kernel says of a GPU (package sysfs), and deciding
// what to do about what was read.
//
// # Calls that do not return
//
// A wedged driver blocks a C call in the kernel, where nothing can abort it.
// Every call therefore runs in a goroutine of the [Library] and under a guard:
// one for each GPU, and one for the calls that concern the node. The caller waits
// no longer than its context allows and no longer than the call's own limit, two
// seconds for a question and 20 for other operations, then gets [gpu.ErrTimeout].
// Until the call returns, further calls under the same guard fail at once.
//
//	what hangs          what goes on
//	a call for a GPU    all calls for other GPUs
//	a call for the node all calls for GPUs, once the library is started
//	Init                nothing: no GPU is known
//
// A call that hangs keeps its goroutine until the driver answers. For each GPU
// that is at most three: the call, a reading that waits for it to return, and the
// wait for events.
package nvml
