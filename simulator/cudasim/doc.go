// SPDX-License-Identifier: Apache-2.0

// Package cudasim simulates CUDA and the kernel driver for processes that use no MPS. It
// serves processes in containers: [Run] listens on the unix socket of
// [nvmlsim.Sim.DriverSocket], which CDI specs mount into containers in the place of
// nvidia-persistenced's, and learns from the kernel which process has connected. A process
// has the devices whose nodes it finds in its own /dev, if its device cgroup of version 1
// lets it open them, and its memory counts in its cgroups of version 2.
//
// # Protocol
//
// Both sides write JSON objects, one a line: a process sends a [Request] and reads a
// [Reply] for each.
//
//	> {"op":"init"}
//	< {"devices":[{"ordinal":0,"uuid":"GPU-…","name":"…","memoryBytes":…,"multiprocessors":…}]}
//	> {"op":"alloc","device":0,"bytes":1073741824}
//	< {"usedBytes":1073741824}
//	> {"op":"info","device":0}
//	< {"memory":{"totalBytes":…,"freeBytes":…}}
//	> {"op":"free","device":0,"bytes":1073741824}
//	< {"usedBytes":0}
//
// The first operation on a device creates a context there, whose memory counts too and is
// not in usedBytes. A refusal is {"error":{"name":"OUT_OF_MEMORY","code":2,"message":"…"}},
// with the name and number of CUDA's driver API; the process goes on. It ends, and with it
// its memory, by closing the connection or by its end.
//
// Out of scope: computing, managed memory, CUDA_VISIBLE_DEVICES, and what version 2 has in
// the place of device cgroups, which nothing can read.
package cudasim
