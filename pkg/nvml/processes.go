package nvml

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Process is a process that uses a GPU.
type Process struct {
	PID int
	// MemoryBytes it holds on the GPU; 0 where not told.
	MemoryBytes uint64
}

// unknownMemory is NVML_VALUE_NOT_AVAILABLE.
const unknownMemory = ^uint64(0)

// Processes lists the processes with a context on the GPU with that UUID,
// ordered by PID. PIDs are those of the PID namespace that NVML is called in.
// It fails with gpu.ErrNotFound for a GPU that the last Snapshot did not read,
// and otherwise as Snapshot does.
func (l *Library) Processes(ctx context.Context, uuid string) ([]Process, error) {
	operation := "list the processes on " + uuid
	lib, index, ok := l.lookUp(uuid)
	if !ok {
		return nil, fmt.Errorf("%s: %w: no such GPU in the last snapshot", operation, gpu.ErrNotFound)
	}
	return do(ctx, l.slot(index).guard, operation, func() ([]Process, error) {
		device, ret := lib.DeviceGetHandleByUUID(uuid)
		if err := check(operation, ret); err != nil {
			return nil, err
		}
		compute, ret := device.GetComputeRunningProcesses()
		if err := check(operation, ret); err != nil {
			return nil, err
		}
		graphics, ret := device.GetGraphicsRunningProcesses()
		if _, err := optional(operation, ret); err != nil {
			return nil, err
		}
		// A process may use the GPU both ways.
		byPID := map[int]Process{}
		for _, p := range append(compute, graphics...) {
			byPID[int(p.Pid)] = process(p)
		}
		return slices.SortedFunc(maps.Values(byPID), func(a, b Process) int { return cmp.Compare(a.PID, b.PID) }), nil
	})
}

func process(p nvml.ProcessInfo) Process {
	if p.UsedGpuMemory == unknownMemory {
		return Process{PID: int(p.Pid)}
	}
	return Process{PID: int(p.Pid), MemoryBytes: p.UsedGpuMemory}
}
