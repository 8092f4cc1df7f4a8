// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Share describes how a device is shared, and the limits of one share.
type Share struct {
	// Strategy is empty for a claim without a readable record. The other fields
	// are unknown then.
	Strategy v1alpha1.Strategy
	// Memory of the share in bytes; 0 for time slices that name none, and if the claim
	// has the whole device.
	Memory uint64
	// Compute is the requested percentage of the multiprocessors; 0 if the claim
	// requests none.
	Compute int
	// Slots of time slices; 0 for other devices, and if the number is not known.
	Slots int
	// Processes is the number of processes that divide an MPS share; 0 if they
	// are not counted.
	Processes int
	// ThreadPercentage is the percentage of the multiprocessors that each process
	// can use at most; 0 for no limit.
	ThreadPercentage int
	// MemoryLimit of each process in bytes, without its CUDA context; 0 for no
	// limit.
	MemoryLimit uint64
	// TimeSlice is the requested time slice; empty if the claim requests none.
	TimeSlice gpu.TimeSlice
	// ContainerMemoryLimit of each container in bytes, of so many Containers at a
	// time; 0 if the driver does not limit it.
	ContainerMemoryLimit uint64
	Containers           int
	// Memory and compute are limited so strictly.
	MemoryEnforcement, ComputeEnforcement v1alpha1.Enforcement
}
