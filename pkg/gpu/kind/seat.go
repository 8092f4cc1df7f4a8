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

// Seats returns the name of the seats of a GPU.
func Seats(address gpu.PCIAddress) Name { return Name{Kind: Seat, Address: address} }

const seatSuffix = "-seat"

type seat struct{}

var (
	_ offered  = seat{}
	_ divided  = seat{}
	_ consumer = seat{}
	_ limited  = seat{}
)

func (seat) kind() Kind                         { return Seat }
func (seat) format(n Name) string               { return n.Address.DeviceName() + seatSuffix }
func (seat) parse(s string) (Name, bool, error) { return parseSuffix(Seat, s, seatSuffix) }
func (seat) scope() Scope                       { return ScopeGPU }
func (seat) takes() Taken                       { return TakesSeats }
func (seat) offer() string                      { return v1alpha1.OfferSeat }

// units are as many by default as time slices, so that either can replace the other. Each
// needs a client of MPS.
func (seat) units() Units {
	return Units{
		Capacity: v1alpha1.CapacitySeats, Standard: timeSlice{}.units().Standard,
		Most: gpu.MPSMaxClients, Limit: "the processes that MPS admits to a GPU",
		Flag: "seats", Usage: "`NUMBER` of equal seats of a GPU, each held by MPS to its part of memory and compute, if the node offers seat",
	}
}

// size returns the memory in bytes of one seat, in whole steps.
func (seat) size(a Amounts) int64 {
	return a.Memory.Value() / a.Units / a.Step.Value() * a.Step.Value()
}

// consume returns the share of seats: of n seats, each has an nth of memory and compute,
// rounded down.
func (s seat) consume(a Amounts, consumed Consumed) (Share, error) {
	seats := consumed[v1alpha1.CapacitySeats]
	n, exact := seats.AsInt64()
	if !exact || n < 1 || n > a.Units {
		return Share{}, fmt.Errorf("%w: %s seats of a GPU; want a whole number from 1 to %d, the seats of a GPU of this node", gpu.ErrInvalid, seats.String(), a.Units)
	}
	return Share{Memory: uint64(n * s.size(a)), Compute: int(WholeCompute * n / a.Units)}, nil
}

func (s seat) check(g gpu.GPU, a Amounts) error {
	size := resource.NewQuantity(s.size(a), resource.BinarySI)
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

func (seat) configuration() Configuration {
	const strategy = v1alpha1.StrategyMPS
	return Configuration{Own: v1alpha1.KindShareConfig, Strategy: strategy, Noun: "a seat", Remedy: " whose strategy is " + string(strategy)}
}

func (seat) class() Class {
	return Class{
		Comment:    "Equal seats of a GPU, on nodes that offer them (seat). MPS limits each to its part of\nmemory and compute.",
		Capacities: "seats for seats",
	}
}

// attributes adds the attributes by which a claim for seats selects: those of time
// slices, and how a seat is limited.
func (seat) attributes(f Inputs, a Attributes) {
	timeSlice{}.attributes(f, a)
	a.shares(f)
}

// capacities returns the seats, and the memory of one seat, which is for selectors: no
// request can name it.
func (s seat) capacities(a Amounts) Capacities {
	memory := resourceapi.DeviceCapacity{Value: *resource.NewQuantity(s.size(a), resource.BinarySI)}
	if !memory.Value.IsZero() {
		none := number(0)
		memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: &none, ValidValues: []resource.Quantity{none}}
	}
	return Capacities{
		v1alpha1.CapacitySeats:  {Value: number(a.Units), RequestPolicy: policy(number(1), number(1), number(1))},
		v1alpha1.CapacityMemory: memory,
	}
}
