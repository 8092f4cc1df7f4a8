// SPDX-License-Identifier: Apache-2.0

// Package nvmlsim simulates the GPUs of a node behind go-nvml's [nvml.Interface]. The
// same driver code runs with and without hardware.
//
// A [Model] describes the hardware of a node. A [Sim] is a simulated node. It is a
// root file system ([Sim.Root]) with the driver's libraries, programs and firmware, the
// /dev, /proc and /sys of the GPUs, and its state. Several processes may share it: all of
// them see a change with their next call, and the state outlives the processes.
//
// Others use the root as they use a real driver. Programs without this package load
// libnvidia-ml.so.1 from there: the command libnvidia-ml is this package for C. The programs
// nvidia-smi and nvidia-cuda-mps-control there are gpu-sim under other names; packages
// smisim and mpssim implement them. A user's container gets nvidia-smi without the state,
// and a file of the firmware with the facts that nvidia-smi prints ([SMITables]).
//
// The simulator refuses the same operations as hardware.
//
// Out of scope: computing, the CUDA library, graphics, vGPU, clocks other than the
// SMs', power and temperature. Methods that are not simulated panic with their name, also
// the ones of go-nvml that return a handler (DeviceGetGpuFabricInfoV, ...): such a handler
// calls libnvidia-ml itself. [Versioned] has these calls.
package nvmlsim
