// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/share"
)

// shareSize is the size of an MPS share, from which the limits of its processes follow.
// Memory is in bytes.
type shareSize struct {
	memory, all uint64 // of the share and of its device
	compute     int    // percent of the multiprocessors, 0 if the claim named none
	burst       bool   // a share that names no compute is not limited
	processes   int
	context     uint64 // of a process, besides its limit
}

// limitsOf returns the limits of each process of a share. All processes together use
// no more than the share:
//
//	memory   share / processes - context, rounded down to whole Mi
//	threads  compute / processes, rounded down; at least 1
//
// A share that names no compute has as large a part of it as of the memory. The error
// wraps [gpu.ErrInvalid] and says how large the share has to be.
func limitsOf(s shareSize) (share.Client, error) {
	processes := uint64(max(1, s.processes))
	c := share.Client{Processes: int(processes)}
	each := s.memory / processes
	if least := s.context + catalog.MemoryStep; each < least {
		needed := (processes*least + catalog.MemoryStep - 1) / catalog.MemoryStep * catalog.MemoryStep
		return share.Client{}, fmt.Errorf("%w: %s of memory for %d processes leaves none to compute with: each needs %s for its CUDA context alone; ask for %s at least, or declare fewer processes in the ShareConfig",
			gpu.ErrInvalid, inBytes(s.memory), processes, inBytes(s.context), inBytes(needed))
	}
	c.MemoryLimit = (each - s.context) / catalog.MemoryStep * catalog.MemoryStep
	percent := uint64(s.compute)
	switch {
	case percent > 0:
	case s.burst:
		return c, nil
	default:
		percent = 100 * s.memory / s.all
	}
	c.ThreadPercentage = int(max(1, percent/processes))
	return c, nil
}

// maxClients returns the number of MPS clients that a device admits at a time.
func maxClients(g gpu.GPU, name kind.Name) int {
	if !name.IsPartition() {
		return gpu.MPSMaxClients
	}
	info, _, _ := name.FindIn(g.MIG)
	return gpu.MPSClients(info.ComputeSlices, g.MIG.ComputeSlices())
}

// memoryOf returns the memory of a device as published, whether the device is
// shared or not.
func (s Settings) memoryOf(g gpu.GPU, name kind.Name, shared bool) (resource.Quantity, error) {
	if !name.IsPartition() {
		return s.Shares.Memory(g, shared), nil
	}
	info, _, known := name.FindIn(g.MIG)
	if !known {
		return resource.Quantity{}, fmt.Errorf("%w: %s has no MIG profile %s at memory slice %d", gpu.ErrNotFound, Describe(name.Address), name.Profile, name.Start)
	}
	return s.Shares.PartitionMemory(g, info, shared), nil
}

// inBytes formats an amount of memory as "10Gi".
func inBytes(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
