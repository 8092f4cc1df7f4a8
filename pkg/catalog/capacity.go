// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MemoryStep is the unit, in bytes, in which memory is published and taken.
const MemoryStep = 1 << 20

// Memory returns the memory of a GPU that claims can use: NVML's total, minus the memory
// that the driver and the firmware reserve, and minus the memory of the MPS server
// if claims can take shares of the GPU that MPS limits. Shares that add up to this
// amount therefore fit on the GPU. It is the capacity "memory" of a GPU with shares, of its
// time slices and of its seats together. It is rounded down to whole steps, so that a
// request for all of it is valid.
func (o ShareOffer) Memory(g gpu.GPU, shared bool) resource.Quantity {
	return o.published(g, less(g.MemoryBytes, g.ReservedBytes), shared)
}

// PartitionMemory returns the capacity "memory" of a MIG device of the profile. The
// memory of a profile does not include the driver's reserve. An idle MIG device was
// seen to use 13 MiB nevertheless, which [ShareOffer.ServerMemory] covers.
// Source: github.com/XuehaiPan/nvitop/pull/8.
func (o ShareOffer) PartitionMemory(g gpu.GPU, p gpu.ProfileInfo, shared bool) resource.Quantity {
	return o.published(g, p.MemoryBytes, shared)
}

func (o ShareOffer) published(g gpu.GPU, usable uint64, shared bool) resource.Quantity {
	if shared && o.byMPS(g) {
		usable = less(usable, o.ServerMemory)
	}
	return wholeSteps(usable)
}

// wholeSteps returns an amount in bytes, rounded down to whole steps of [MemoryStep].
func wholeSteps(bytes uint64) resource.Quantity {
	return *resource.NewQuantity(int64(bytes/MemoryStep*MemoryStep), resource.BinarySI)
}

// less returns the difference, or 0 if part is the larger one.
func less(all, part uint64) uint64 { return all - min(all, part) }
