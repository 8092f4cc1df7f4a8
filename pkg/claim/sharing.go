// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Share is how a device is shared, and what a share of it is held to.
type Share struct {
	// Strategy is empty where only the CDI spec of a claim tells of it; then
	// nothing else is known either.
	Strategy v1alpha1.Strategy
	// Memory in bytes that the share has; 0 for time slices, and where a claim
	// has all of the device.
	Memory uint64
	// Compute in percent of the multiprocessors that the claim asked for; 0
	// where it named none.
	Compute int
	// Processes among which an MPS share is divided; 0 where they are not
	// counted.
	Processes int
	// ThreadPercentage of the multiprocessors that each process can have at
	// most; 0 for no limit.
	ThreadPercentage int
	// MemoryLimit in bytes of each process, without its context; 0 for no
	// limit.
	MemoryLimit uint64
	// TimeSlice that was asked for; empty where none was.
	TimeSlice   gpu.TimeSlice
	Enforcement v1alpha1.Enforcement
}
