// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"context"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// unknownMemory is NVML_VALUE_NOT_AVAILABLE.
const unknownMemory = ^uint64(0)

// noInstance is the instance ID of a process that runs on no MIG device.
const noInstance = 0xFFFFFFFF

// Processes lists the processes with a context on the GPU at the address. It
// includes MPS servers and clients. The order is by PID and GPU instance. The PIDs
// are valid in the PID namespace of this process. On a GPU in MIG mode it lists the
// processes of all its MIG devices, which takes a privileged caller.
//
// Programs that only monitor or configure the GPU have no context and are not
// listed. The error wraps [gpu.ErrNotSupported] if the driver cannot list
// processes. Other errors are the same as from [Library.MIG].
func (l *Library) Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error) {
	return onGPU(ctx, l, address, "list the processes on", readProcesses)
}

func readProcesses(device nvml.Device) ([]gpu.Process, error) {
	compute, ret := device.GetComputeRunningProcesses()
	if err := check("list compute processes", ret); err != nil {
		return nil, err
	}
	mps, ret := device.GetMPSComputeRunningProcesses() // Volta and newer
	if _, err := optional("list MPS processes", ret); err != nil {
		return nil, err
	}
	graphics, ret := device.GetGraphicsRunningProcesses()
	if _, err := optional("list graphics processes", ret); err != nil {
		return nil, err
	}
	var all []gpu.Process
	for _, p := range slices.Concat(compute, mps) {
		all = append(all, process(p, false))
	}
	for _, p := range graphics {
		all = append(all, process(p, true))
	}
	// A process may be in several lists. The sort is stable, so the entry of a
	// compute list is first and is kept.
	slices.SortStableFunc(all, compareProcesses)
	return slices.CompactFunc(all, func(a, b gpu.Process) bool { return compareProcesses(a, b) == 0 }), nil
}

func compareProcesses(a, b gpu.Process) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(instanceOf(a), instanceOf(b)))
}

func instanceOf(p gpu.Process) int {
	if p.GPUInstance == nil {
		return noInstance
	}
	return *p.GPUInstance
}

func process(p nvml.ProcessInfo, graphics bool) gpu.Process {
	result := gpu.Process{PID: int(p.Pid), MemoryBytes: p.UsedGpuMemory, Graphics: graphics}
	if p.UsedGpuMemory == unknownMemory {
		result.MemoryBytes = 0
	}
	if p.GpuInstanceId != noInstance {
		instance := int(p.GpuInstanceId)
		result.GPUInstance = &instance
	}
	return result
}
