// SPDX-License-Identifier: Apache-2.0

// Package cdi describes a prepared claim's devices to the container runtime with the
// Container Device Interface: one spec file per claim in a directory that the runtime
// reads.
//
// [Render] is pure and turns a claim's injections into a spec. [Writer] creates,
// replaces, lists and removes the files of this driver and touches no others.
// [DriverEdits] finds the driver's files that every container with a GPU needs
// (libraries, binaries, hooks, control device nodes) with NVIDIA's nvcdi package.
//
// Out of scope: which device a claim has, and which nodes, mounts and variables come
// with it.
package cdi
