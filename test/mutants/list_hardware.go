// SPDX-License-Identifier: Apache-2.0

package main

// hardwareMutants returns the mutants of reading health and memory from the hardware.
func hardwareMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/nvml/recovery.go",
			old:    "	return gpu.RecoverySystemReboot\n",
			new:    "	return gpu.RecoveryNone\n",
			notice: "a GPU whose driver requires an unknown recovery action is assigned",
			run:    "RecoveryAction",
		},
		{
			file:   "pkg/nvml/recovery.go",
			old:    `return uint64(binary.NativeEndian.Uint32(f.Value[:])), true`,
			new:    `return binary.NativeEndian.Uint64(f.Value[:]), true`,
			notice: "the bytes after a value of four bytes are read as a recovery action",
			run:    "RecoveryAction",
		},
		{
			file:   "pkg/nvml/recovery.go",
			old:    `present, err := optional(operation, nvml.Return(fields[0].NvmlReturn))`,
			new:    `present, err := true, error(nil)`,
			notice: "a driver without recovery actions counts as requiring none",
			run:    "RecoveryAction",
		},
		{
			file: "pkg/nvml/recovery.go",
			old: `	if !has(lib, "nvmlDeviceGetFieldValues") {
		return nil
	}
`,
			new:    ``,
			notice: "an old driver's library terminates the agent",
			run:    "RecoveryActions",
		},
		{
			file:   "pkg/nvml/nvlink.go",
			old:    `			return gpu.FabricFailed`,
			new:    `			return gpu.FabricCompleted`,
			notice: "pods get a GPU whose registration with its fabric has failed, and die with error 802",
			run:    "Fabric",
		},
		{
			file:   "pkg/nvml/nvlink.go",
			old:    `if g.FabricState == gpu.FabricCompleted && cluster != uuid.Nil {`,
			new:    `if g.FabricState == gpu.FabricCompleted {`,
			notice: "the GPUs of all DGX H100s are published as one rack",
			run:    "Fabric",
		},
		{
			file:   "pkg/nvml/snapshot.go",
			old:    `g.ReservedBytes = memory.Reserved`,
			new:    `g.ReservedBytes = 0`,
			notice: "shares include memory that the GPU does not have",
			run:    "Reserved",
		},
		{
			file:   "pkg/nvml/migmode.go",
			old:    `	if pending != current {`,
			new:    `	if false {`,
			notice: "a MIG mode that cannot be canceled counts as canceled",
			run:    "PendingMIGMode",
		},
	}
}
