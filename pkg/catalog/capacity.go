// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MemoryStep is the unit, in bytes, in which memory is published and taken.
const MemoryStep = 1 << 20

// wholeCompute is 100 percent.
const wholeCompute = 100

// Memory returns the capacity "memory" of a GPU: what NVML reports in all, less
// what the driver and the firmware keep, and less the MPS server where claims can
// take shares of the GPU and MPS holds them. So shares of all of it fit on the GPU.
// It is rounded down to whole steps, so that the whole is a valid request.
func (o ShareOffer) Memory(g gpu.GPU, shared bool) resource.Quantity {
	return o.published(g, less(g.MemoryBytes, g.ReservedBytes), shared)
}

// PartitionMemory returns the capacity "memory" of a MIG device of the profile, in
// the same way: the driver's part is not in what a profile has. An idle MIG device
// was seen to use 13 MiB all the same, which [ShareOffer.ServerMemory] covers too.
// Source: github.com/XuehaiPan/nvitop/pull/8.
func (o ShareOffer) PartitionMemory(g gpu.GPU, p gpu.ProfileInfo, shared bool) resource.Quantity {
	return o.published(g, p.MemoryBytes, shared)
}

func (o ShareOffer) published(g gpu.GPU, usable uint64, shared bool) resource.Quantity {
	if shared && o.byMPS(g) {
		usable = less(usable, o.ServerMemory)
	}
	return *resource.NewQuantity(int64(usable/MemoryStep*MemoryStep), resource.BinarySI)
}

// less is the difference, or 0 if there is none.
func less(all, part uint64) uint64 { return all - min(all, part) }
