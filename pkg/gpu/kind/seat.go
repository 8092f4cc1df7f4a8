// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Seat is a whole GPU that claims share in equal seats, which MPS limits. A claim takes
// seats.
const Seat Kind = v1alpha1.DeviceTypeSeat

func seat() rules {
	const strategy = v1alpha1.StrategyMPS
	return rules{
		kind: Seat, scope: ScopeGPU, takes: TakesSeats, offer: v1alpha1.OfferSeat, suffix: "-seat",
		// There are as many as time slices by default, so that either can replace the other.
		units: Units{
			Capacity: v1alpha1.CapacitySeats, Standard: timeSlice().units.Standard,
			Most: gpu.MPSMaxClients, Limit: "the processes that MPS admits to a GPU",
			Flag: "seats", Usage: "`NUMBER` of equal seats of a GPU, each held by MPS to its part of memory and compute, if the node offers seat",
		},
		configuration: Configuration{Own: v1alpha1.KindShareConfig, Strategy: strategy, Noun: "a seat", Remedy: " whose strategy is " + string(strategy)},
		class: Class{
			Comment:    "Equal seats of a GPU, on nodes that offer them (seat). MPS limits each to its part of\nmemory and compute.",
			Capacities: "seats for seats",
		},
		attributes: seatAttributes, capacities: seatCapacities, consume: consumeSeats, check: checkSeats,
	}
}

// seatMemory returns the memory in bytes of one seat, in whole steps.
func seatMemory(a Amounts) int64 {
	return a.Memory.Value() / a.Units / a.Step.Value() * a.Step.Value()
}

// consumeSeats returns the share of seats: of n seats, each has an nth of memory and compute,
// rounded down.
func consumeSeats(a Amounts, consumed Consumed) (Share, error) {
	seats := consumed[v1alpha1.CapacitySeats]
	n, exact := seats.AsInt64()
	if !exact || n < 1 || n > a.Units {
		return Share{}, fmt.Errorf("%w: %s seats of a GPU; want a whole number from 1 to %d, the seats of a GPU of this node", gpu.ErrInvalid, seats.String(), a.Units)
	}
	return Share{Memory: uint64(n * seatMemory(a)), Compute: int(WholeCompute * n / a.Units)}, nil
}

func checkSeats(g gpu.GPU, a Amounts) error {
	size := resource.NewQuantity(seatMemory(a), resource.BinarySI)
	switch {
	case !a.MPS:
		return errors.New("it has no seats: MPS limits them, and no MPS daemons run on this node; deploy gpu-mps-supervisor, or remove seat from the offer")
	case !g.MPSLimits():
		return errors.New("it has no seats: MPS limits them, and only GPUs with the compute capability 7.0 (Volta) or newer")
	case a.Memory.IsZero():
		return errors.New("it has no seats: its memory is not known")
	case size.Cmp(a.Smallest) < 0:
		return fmt.Errorf("it has no seats: each of %d would have %s of memory, and the smallest share on this node has %s; offer fewer seats", a.Units, size, &a.Smallest)
	}
	return nil
}

// seatAttributes adds the attributes by which a claim for seats selects: those of time
// slices, and how a seat is limited.
func seatAttributes(f Inputs, a Attributes) {
	slotAttributes(f, a)
	a.shares(f)
}

// seatCapacities returns the seats, and the memory of one seat, which is for selectors: no
// request can name it.
func seatCapacities(a Amounts) Capacities {
	memory := resourceapi.DeviceCapacity{Value: *resource.NewQuantity(seatMemory(a), resource.BinarySI)}
	if !memory.Value.IsZero() {
		none := number(0)
		memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: &none, ValidValues: []resource.Quantity{none}}
	}
	return Capacities{
		v1alpha1.CapacitySeats:  {Value: number(a.Units), RequestPolicy: policy(number(1), number(1), number(1))},
		v1alpha1.CapacityMemory: memory,
	}
}
