// SPDX-License-Identifier: Apache-2.0

// Package smisim is nvidia-smi of a simulated driver: lists, queries, the topology and
// the changes that our driver and administrators make.
//
// It shows the GPUs and MIG devices whose device nodes exist. On the node these are all of
// them, and the facts come from the state of the node. A container has the device nodes of
// its own devices, and the facts come from a file that is mounted into it. Nothing can be
// changed there.
//
// GPUs are named by index, PCI address or UUID, separated by commas. No name means all GPUs.
package smisim
