// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// DefaultTimeSlices is the default number of slots of a GPU.
const DefaultTimeSlices = 4

// CheckTimeSlices returns an error unless a GPU can have so many slots.
func CheckTimeSlices(slots int) error {
	if slots < 1 {
		return fmt.Errorf("%d: %w: want a number from 1 on", slots, gpu.ErrInvalid)
	}
	return nil
}

// Slots returns the number of slots that an allocation of a time-sliced GPU
// consumes. The error for an allocation without slots wraps [gpu.ErrInvalid].
func Slots(consumed map[resourceapi.QualifiedName]resource.Quantity) (int, error) {
	slots := consumed[v1alpha1.CapacitySlots]
	n, exact := slots.AsInt64()
	if !exact || n < 1 {
		return 0, fmt.Errorf("%w: %s slots of a time-sliced GPU; want a whole number from 1", gpu.ErrInvalid, slots.String())
	}
	return int(n), nil
}

// SlotMemory returns the memory in bytes that an allocation of a time-sliced GPU takes;
// 0 if the claim names none. all is the memory of the GPU, from [ShareOffer.Memory]. The
// error for an amount that no share can have wraps [gpu.ErrInvalid].
func (o ShareOffer) SlotMemory(all resource.Quantity, consumed map[resourceapi.QualifiedName]resource.Quantity) (uint64, error) {
	if memory := consumed[v1alpha1.CapacityMemory]; memory.IsZero() {
		return 0, nil
	}
	share, err := o.Share(all, consumed)
	return share.Memory, err
}

// timeSliced reports whether time slices of the GPU are offered or held. A GPU whose
// partitions are fixed offers none.
func (c Catalog) timeSliced(g gpu.GPU, held Held, fixed bool) bool {
	_, taken := held[kind.Slots(g.Address)]
	return (c.offersSlots() && !fixed || taken) && !c.Exclusive
}

func (c Catalog) offersSlots() bool { return c.Offer.TimeSlice && !c.NoCounters }

// slots returns the device of which claims take slots.
func (c Catalog) slots(node gpu.Node, g gpu.GPU) resourceapi.Device {
	shared := true
	amounts := c.Shares.amounts(g, shared)
	amounts.Slots = int64(cmp.Or(c.TimeSlices, DefaultTimeSlices))
	return resourceapi.Device{
		Name:                     kind.Slots(g.Address).String(),
		Attributes:               c.Selection.Published(kind.TimeSlice.Attributes(c.slotFacts(node, g))),
		AllowMultipleAllocations: &shared,
		Capacity:                 kind.TimeSlice.Capacities(amounts),
	}
}

// slotFacts returns the inputs for the attributes of time slices.
func (c Catalog) slotFacts(node gpu.Node, g gpu.GPU) kind.Inputs {
	f := kind.Inputs{Node: node, GPU: g, Lists: c.ListAttributes}
	f.Memory, f.Compute = use.Enforcement(g, use.Use{Device: kind.Slots(g.Address), Sharing: use.TimeSlices})
	return f
}
