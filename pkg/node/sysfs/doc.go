// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads facts about a node's GPUs from the kernel: the NUMA node, the
// PCIe root and the device nodes of each GPU, and the boot ID. All paths are below a
// [Root], which may also be a simulated node or the mounted root of a host.
//
// A fact that the platform does not provide is absent. A fact that it provides and
// that cannot be read is an error.
//
// It creates missing device nodes of loaded kernel modules.
//
// Out of scope: facts from the GPU driver (package nvml), and loading kernel modules.
package sysfs
