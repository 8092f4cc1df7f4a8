// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// shareSize is the size of an MPS share, from which the limits of its processes follow.
// Memory is in bytes.
type shareSize struct {
	memory, all uint64 // of the share and of its device
	compute     int    // percent of the multiprocessors, 0 if the claim named none
	burst       bool   // a share that names no compute is not limited
	processes   int
}

// limitsOf returns the limits of each process of a share. All processes together use
// no more than the share. MPS counts the contexts of the processes too, as was measured with
// the releases 580 (H200) and 615 (RTX PRO 6000).
//
//	memory   share / processes, rounded down to whole Mi
//	threads  compute / processes, rounded down; at least 1
//
// A share that names no compute has as large a part of it as of the memory. A share has at most
// as many processes as [deviceRequest.checkProcesses] admits, so each has memory.
func limitsOf(s shareSize) share.Client {
	processes := uint64(max(1, s.processes))
	c := share.Client{Processes: int(processes)}
	c.MemoryLimit = s.memory / processes / catalog.MemoryStep * catalog.MemoryStep
	percent := uint64(s.compute)
	switch {
	case percent > 0:
	case s.burst:
		return c
	default:
		percent = 100 * s.memory / s.all
	}
	c.ThreadPercentage = int(max(1, percent/processes))
	return c
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
