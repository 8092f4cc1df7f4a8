// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const (
	// DefaultSeats is the default number of seats of a GPU: as many as there are time
	// slices by default, so that either can replace the other.
	DefaultSeats = 4
	// MaxSeats is the most seats that a GPU can have. Each needs a client of MPS.
	MaxSeats = gpu.MPSMaxClients
)

// seats returns the number of seats of a GPU.
func (o ShareOffer) seats() int { return cmp.Or(o.Seats, DefaultSeats) }

// seatMemory returns the memory in bytes of one seat of a GPU with the memory, in whole
// steps of [MemoryStep].
func (o ShareOffer) seatMemory(all resource.Quantity) uint64 {
	return uint64(all.Value()) / uint64(o.seats()) / MemoryStep * MemoryStep
}

// SeatShare returns the share that an allocation of seats has of a GPU: of n seats, each
// has an nth of memory and compute, rounded down. all is the memory of the GPU, from
// [ShareOffer.Memory]. The error for a number of seats that the GPU does not have wraps
// [gpu.ErrInvalid].
func (o ShareOffer) SeatShare(all resource.Quantity, consumed map[resourceapi.QualifiedName]resource.Quantity) (Share, error) {
	seats := consumed[v1alpha1.CapacitySeats]
	n, exact := seats.AsInt64()
	if !exact || n < 1 || n > int64(o.seats()) {
		return Share{}, fmt.Errorf("%w: %s seats of a GPU; want a whole number from 1 to %d, the seats of a GPU of this node", gpu.ErrInvalid, seats.String(), o.seats())
	}
	return Share{Memory: uint64(n) * o.seatMemory(all), Compute: kind.WholeCompute * int(n) / o.seats()}, nil
}

// checkSeats returns an error if the GPU cannot have seats.
func (o ShareOffer) checkSeats(g gpu.GPU) error {
	all := o.Memory(g, true)
	smallest, seat := o.smallest(all), resource.NewQuantity(int64(o.seatMemory(all)), resource.BinarySI)
	switch {
	case !o.MPS:
		return errors.New("it has no seats: MPS limits them, and no MPS daemons run on this node; deploy gpu-mps-supervisor, or remove seat from the offer")
	case !g.MPSLimits():
		return errors.New("it has no seats: MPS limits them, and only GPUs with the compute capability 7.0 (Volta) or newer")
	case all.IsZero():
		return errors.New("it has no seats: its memory is not known")
	case seat.Cmp(smallest) < 0:
		return fmt.Errorf("it has no seats: each of %d would have %s of memory, and the smallest share on this node has %s; offer fewer seats", o.seats(), seat, &smallest)
	}
	return nil
}

// seated reports whether seats of the GPU are offered or held. A GPU whose partitions are
// fixed offers none.
func (c Catalog) seated(g gpu.GPU, held Held, fixed bool) bool {
	_, taken := held[kind.Seats(g.Address)]
	return (c.offersSeats(g) && !fixed || taken) && !c.Exclusive
}

func (c Catalog) offersSeats(g gpu.GPU) bool {
	return c.Offer.Seat && !c.NoCounters && c.Shares.checkSeats(g) == nil
}

// seats returns the device of which claims take seats.
func (c Catalog) seats(node gpu.Node, g gpu.GPU) resourceapi.Device {
	shared := true
	memory := resource.NewQuantity(int64(c.Shares.seatMemory(c.Shares.Memory(g, shared))), resource.BinarySI)
	return resourceapi.Device{
		Name:                     kind.Seats(g.Address).String(),
		Attributes:               c.Selection.Published(kind.Seat.Attributes(c.seatFacts(node, g))),
		AllowMultipleAllocations: &shared,
		Capacity:                 kind.Seat.Capacities(kind.Amounts{Memory: *memory, Seats: int64(c.Shares.seats())}),
	}
}

// seatFacts returns the inputs for the attributes of a seat device.
func (c Catalog) seatFacts(node gpu.Node, g gpu.GPU) kind.Inputs {
	f := kind.Inputs{Node: node, GPU: g, Lists: c.ListAttributes}
	c.Shares.describe(&f, kind.Seats(g.Address), true)
	return f
}
