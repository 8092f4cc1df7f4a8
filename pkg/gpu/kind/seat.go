// SPDX-License-Identifier: Apache-2.0

package kind

import (
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

func (seat) kind() Kind                         { return Seat }
func (seat) format(n Name) string               { return n.Address.DeviceName() + seatSuffix }
func (seat) parse(s string) (Name, bool, error) { return parseSuffix(Seat, s, seatSuffix) }
func (seat) scope() Scope                       { return ScopeGPU }
func (seat) takes() Taken                       { return TakesSeats }
func (seat) adminOnly() bool                    { return false }
func (seat) offer() string                      { return v1alpha1.OfferSeat }

func (seat) configuration() Configuration {
	const strategy = v1alpha1.StrategyMPS
	return Configuration{Own: v1alpha1.KindShareConfig, Strategy: strategy, Noun: "a seat", Remedy: " whose strategy is " + string(strategy)}
}

// attributes adds the attributes by which a claim for seats selects: those of time
// slices, and how a seat is limited.
func (seat) attributes(f Inputs, a Attributes) {
	timeSlice{}.attributes(f, a)
	a.shares(f)
}

// capacities returns the seats, and the memory of one seat, which is for selectors: no
// request can name it.
func (seat) capacities(a Amounts) Capacities {
	memory := resourceapi.DeviceCapacity{Value: a.Memory}
	if !a.Memory.IsZero() {
		none := number(0)
		memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: &none, ValidValues: []resource.Quantity{none}}
	}
	return Capacities{
		v1alpha1.CapacitySeats:  {Value: number(a.Seats), RequestPolicy: policy(number(1), number(1), number(1))},
		v1alpha1.CapacityMemory: memory,
	}
}
