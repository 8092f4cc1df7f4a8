// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Settings are the offer and the abilities of a node.
type Settings struct {
	// DriverName selects the allocation results and configurations of this driver.
	DriverName string
	// PoolName is the pool that this node publishes.
	PoolName string
	Shares   catalog.ShareOffer
	// Partitioning, MPS and TimeSlicing are set if the node supports them.
	Partitioning, MPS, TimeSlicing bool
	// ExclusiveCompute is set if GPUs are in EXCLUSIVE_PROCESS while they have MPS
	// shares.
	ExclusiveCompute bool
}

// Inputs are the inputs of a plan in addition to the claim.
type Inputs struct {
	Settings
	// GPUs of the claim's devices. A GPU that is missing is not found.
	GPUs map[gpu.PCIAddress]GPU
	// MultiUser is set if the MPS daemons of the node serve several users at a time.
	// It is needed if [Allocation.MultiUser].
	MultiUser    bool
	MultiUserErr error
}

// GPU is a GPU as last seen, or why it cannot be used.
type GPU struct {
	GPU use.GPU
	Err error
}

func (in Inputs) gpuAt(address gpu.PCIAddress) (use.GPU, error) {
	known, ok := in.GPUs[address]
	if !ok {
		return use.GPU{}, fmt.Errorf("%s: %w", Describe(address), gpu.ErrNotFound)
	}
	return known.GPU, known.Err
}
