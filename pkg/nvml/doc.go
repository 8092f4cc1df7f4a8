// Package nvml reads GPUs through NVIDIA's management library and hands them on
// as values of package gpu. It is the only reader of that API: return codes are
// mapped to the sentinel errors of package gpu here and nowhere else, and no
// type of the vendor's reaches a caller (except through [Library.Vendor], for
// libraries that want the whole interface).
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
// Every call therefore runs in a goroutine of the [Library] and the caller
// waits for it no longer than its context allows, then gets [gpu.ErrTimeout].
// The goroutine stays until the driver answers. Until then further calls of the
// same kind fail at once, so at most one goroutine a GPU, one for the node and
// one for each Watch are ever left behind.
package nvml
