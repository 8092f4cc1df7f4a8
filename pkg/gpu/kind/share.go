// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Consumed are the capacities that an allocation consumes.
type Consumed map[resourceapi.QualifiedName]resource.Quantity

// Share is the part of a device that an allocation takes.
type Share struct {
	// Whole is true for an allocation of all of the memory, and for one of slots.
	Whole bool
	// Memory in bytes; of slots the memory that the claim names besides, 0 for none.
	Memory uint64
	// Compute in percent of the multiprocessors; 0 if the claim requests none.
	Compute int
	// Slots of a device that claims take in slots.
	Slots int
}

// Consume returns the share that an allocation takes of a device with the amounts. The
// error for a share that the scheduler cannot have allocated wraps [gpu.ErrInvalid].
func (k Kind) Consume(a Amounts, consumed Consumed) (Share, error) {
	if consume := k.rules().consume; consume != nil {
		return consume(a, consumed)
	}
	return Share{Whole: true}, nil
}

// share returns the share of memory and compute, with memory rounded down to whole steps. An
// allocation that consumes nothing has the whole device.
func (a Amounts) share(consumed Consumed) (Share, error) {
	share := Share{Whole: true, Memory: uint64(a.Memory.Value())}
	if memory, named := consumed[v1alpha1.CapacityMemory]; named {
		switch {
		case memory.Cmp(a.Memory) > 0:
			return Share{}, fmt.Errorf("%w: %s of memory, and the device has %s", gpu.ErrInvalid, memory.String(), a.Memory.String())
		case memory.Cmp(a.Smallest) < 0:
			return Share{}, fmt.Errorf("%w: %s of memory; the smallest share on this node has %s", gpu.ErrInvalid, memory.String(), a.Smallest.String())
		}
		// The scheduler rounds amounts up to a step that is published. MIG devices publish none.
		bytes, step := memory.Value(), a.Step.Value()
		share.Memory, share.Whole = uint64(bytes-bytes%step), memory.Cmp(a.Memory) == 0
	}
	compute := consumed[v1alpha1.CapacityCompute]
	percent, exact := compute.AsInt64()
	if !exact || percent < 0 || percent > WholeCompute {
		return Share{}, fmt.Errorf("%w: %s percent of compute; want a whole number from 0 to %d", gpu.ErrInvalid, compute.String(), WholeCompute)
	}
	share.Compute = int(percent)
	return share, nil
}

// slots returns the slots of an allocation, and the memory that it names besides. what says
// of which GPU they are.
func (a Amounts) slots(consumed Consumed, u Units, what string) (Share, error) {
	slots := consumed[u.Capacity]
	n, exact := slots.AsInt64()
	if !exact || n < 1 {
		return Share{}, fmt.Errorf("%w: %s %s of %s; want a whole number from 1", gpu.ErrInvalid, slots.String(), u.Capacity, what)
	}
	share := Share{Whole: true, Slots: int(n)}
	if memory := consumed[v1alpha1.CapacityMemory]; memory.IsZero() {
		return share, nil
	}
	named, err := a.share(consumed)
	share.Memory = named.Memory
	return share, err
}

// slotCapacities returns the slots, and the memory that claims can name in addition. A
// claim that names none takes none of it. The API admits no default below the minimum, so
// the minimum is 0, and less than the smallest share is refused when a claim is prepared.
func (a Amounts) slotCapacities(u Units) Capacities {
	memory := resourceapi.DeviceCapacity{Value: a.Memory}
	if !a.Memory.IsZero() {
		memory.RequestPolicy = policy(number(0), number(0), a.Step)
	}
	return Capacities{
		u.Capacity:              {Value: number(a.Units), RequestPolicy: policy(number(1), number(1), number(1))},
		v1alpha1.CapacityMemory: memory,
	}
}
