// SPDX-License-Identifier: Apache-2.0

// Package gpu is the vocabulary of the driver: what a node and its GPUs are,
// how devices are named, and the errors that every layer speaks.
//
// It holds values and pure functions only. It opens no file, calls no library
// and starts no goroutine; packages nvml, nvmlsim and sysfs fill these values,
// packages catalog and claim read them.
package gpu
