// SPDX-License-Identifier: Apache-2.0

// Package gpu is the vocabulary of the driver: the types that describe a node
// and its GPUs, and the sentinel errors that every layer returns.
//
// It holds values and pure functions only. It opens no file, calls no library
// and starts no goroutine. Packages nvml and sysfs fill these values;
// packages catalog and claim read them.
package gpu
