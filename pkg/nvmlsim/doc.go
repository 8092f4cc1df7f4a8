// SPDX-License-Identifier: Apache-2.0

// Package nvmlsim simulates the GPUs of a node behind go-nvml's [nvml.Interface]. The
// same driver code runs with and without hardware.
//
// A [Model] describes the hardware of a node. A [Sim] is a simulated node. Its state
// is in a directory that several processes may share: all of them see a change with
// their next call, and the state outlives the processes. The directory also contains
// a root file system ([Sim.Root]) with the driver's libraries and the /dev, /proc and
// /sys of the GPUs. The driver's programs nvidia-smi and nvidia-cuda-mps-control are
// scripts there that call gpu-sim; package mpssim implements the latter. The script
// nvidia-smi prints GPUs without gpu-sim, because containers get only the script.
//
// The simulator refuses the same operations as hardware.
//
// Out of scope: computing, the CUDA library, graphics, vGPU, clocks other than the
// SMs', power and temperature; and the methods of go-nvml that return a handler struct
// (DeviceGetGpuFabricInfoV, DeviceGetGpuInstanceProfileInfoV, ...), because such a
// handler calls libnvidia-ml itself and cannot be redirected. Methods that are not
// simulated panic with their name.
package nvmlsim
