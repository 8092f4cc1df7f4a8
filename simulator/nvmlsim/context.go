// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "math"

const (
	// contextBase is the part of a CUDA context that does not depend on multiprocessors.
	contextBase = 28 << 20
	// contextPerMultiprocessor is the memory of a CUDA context for each multiprocessor that
	// the process sees. An H200 with release 580 has contexts of 58, 80, 145, 271 and 514 MiB
	// with 8, 14, 32, 66 and 132 multiprocessors.
	contextPerMultiprocessor = 3768 << 10
	// smallerContext is the same before and after compute capability 9. NVIDIA's measurements
	// of an RTX PRO 6000 with release 615 (Dynamo, "Per-GPU Compute and Memory Limits with
	// MPS", in steps of 256 MiB) admit at most 3.45 MiB.
	smallerContext = 3482 << 10
)

// hopper is the compute capability whose figures come from an H200.
const hopper = 9

// ContextBytes returns the size in bytes of a process' CUDA context on the device. The
// size depends on the number of multiprocessors that the process sees.
func (d ComputeDevice) ContextBytes(multiprocessors int) uint64 {
	if d.ComputeCapability.Major == hopper {
		return contextBase + uint64(multiprocessors)*contextPerMultiprocessor
	}
	return contextBase + uint64(multiprocessors)*smallerContext
}

const (
	// multiprocessorStep is the number of multiprocessors of a texture processing cluster. MPS
	// assigns whole clusters to clients: 25, 50 and 75 % of 188 were measured as 46, 94 and
	// 140, and 50 % of 108 as 54.
	multiprocessorStep = 2
	// leastOfHopper is what a client of an H200 saw with 2 % of 132.
	leastOfHopper = 8
)

// MPSMultiprocessors returns the multiprocessors that an MPS client sees with a percentage
// of the device's: whole clusters, rounded down, at least one.
func (d ComputeDevice) MPSMultiprocessors(percentage float64) int {
	least := multiprocessorStep
	if d.ComputeCapability.Major == hopper {
		least = leastOfHopper
	}
	sees := int(math.Floor(float64(d.Multiprocessors)*percentage/100)) / multiprocessorStep * multiprocessorStep
	return min(d.Multiprocessors, max(least, sees))
}
