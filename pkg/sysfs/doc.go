// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads what the kernel says of a node's GPUs: the NUMA node and
// the PCIe root of each, its device nodes, and the boot ID. Everything is read
// below a [Root], so that a simulated node's trees or a host's that is mounted
// elsewhere are read in the same way.
//
// A fact that the platform does not state is absent; a fact that should be
// there and cannot be read is an error.
//
// Out of scope: what the GPU driver says (package nvml), and creating device
// nodes.
package sysfs
