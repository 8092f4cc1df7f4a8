// SPDX-License-Identifier: Apache-2.0

// Command libnvidia-ml is libnvidia-ml.so.1 of a simulated node: build it with
// -buildmode=c-shared. Programs load it as they load NVIDIA's, and so need no change.
//
// It exports each function of nvml.h. The ones that package nvmlsim simulates are Go
// functions here, in files by subject. The others are in notsimulated.c and return
// NVML_ERROR_NOT_SUPPORTED. Structs have the layout of nvml.h, through go-nvml's types,
// which the Makefile compares with the header (testdata/layout.c).
//
// The node is the one whose root file system has the library. The environment variable
// GPU_SIM_STATE names the state of another one.
//
// With GPU_SIM_CALLS=FILE each call of a simulated function adds a byte to the file: its size
// is the number of calls.
//
// All functions may be called from any thread. A pointer that the caller may not leave
// out and a handle that this library did not give are NVML_ERROR_INVALID_ARGUMENT.
package main

// main is never called: the library has no program.
func main() {}
