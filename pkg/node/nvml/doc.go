// SPDX-License-Identifier: Apache-2.0

// Package nvml reads GPUs through NVIDIA's management library and hands them on
// as values of package gpu. It is the only caller of that API: return codes are
// mapped to the sentinel errors of package gpu here and nowhere else, and no type
// of the vendor's library reaches a caller.
//
// The hardware is behind go-nvml's Interface, so the same code reads a simulator
// that implements it.
//
// Out of scope: facts that the kernel reports (package sysfs), and acting on the
// readings.
//
// # Calls that do not return
//
// A wedged driver blocks a C call in the kernel, and nothing can abort it. Each
// call therefore runs in a goroutine of the [Library] and under a guard. There is
// one guard for each GPU and one for calls that concern the node. The caller waits
// until its context ends or the call's own limit is over, two seconds for a reading
// and 20 for other operations, and then gets [gpu.ErrTimeout]. Until the call
// returns, further calls under the same guard fail at once.
//
//	hanging call        calls that still work
//	a call for a GPU    calls for other GPUs
//	a call for the node calls for GPUs, once the library is started
//	Init                none: no GPU is known
//
// A call that hangs keeps its goroutine until the driver answers. There are at most
// three for each GPU: the call, a reading that waits for it to return, and the wait
// for events.
package nvml
