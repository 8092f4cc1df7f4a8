// SPDX-License-Identifier: Apache-2.0

// Package nvmlsim simulates the GPUs of a node behind go-nvml's
// [nvml.Interface], so that the very same driver code runs with and without
// hardware.
//
// A [Model] says what the node is made of; a [Sim] is one such node, its state
// in a directory that several processes share: what one of them changes or
// breaks, all see with their next call, and a restart finds what the last
// process left. Beside the state lies a root file system ([Sim.Root]) with the
// driver's libraries and the /dev, /proc and /sys that go with the GPUs. Of the
// driver's programs, nvidia-smi and nvidia-cuda-mps-control stand there as
// scripts that call gpu-sim; package mpssim is what the latter comes to. What
// nvidia-smi only shows, its script answers by itself, because containers are given
// the programs alone.
//
// The simulator refuses what hardware refuses. Calls that it does not simulate
// answer ERROR_NOT_SUPPORTED.
//
// Out of scope: computing anything, the CUDA library, graphics, vGPU, clocks,
// power and temperature; and the methods of go-nvml that return a handler
// struct (DeviceGetGpuFabricInfoV, DeviceGetGpuInstanceProfileInfoV, ...),
// because such a handler calls into libnvidia-ml by itself and cannot be
// redirected. They panic with a text that names a method to use in their
// place.
package nvmlsim
