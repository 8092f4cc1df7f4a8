// SPDX-License-Identifier: Apache-2.0

package kind

import "github.com/gpu-dra/gpu-dra-driver/pkg/gpu"

// Holding is a device as a claim holds it.
type Holding struct {
	Name Name
	// Share reports whether the claim holds a share of the device's memory and not
	// the whole device.
	Share bool
}

// Divisible reports whether other claims can hold a part of the same device.
func (h Holding) Divisible() bool {
	return h.Share || h.Name.Kind.Takes() == TakesSlots || h.Name.Kind.Takes() == TakesSeats
}

// Excludes reports whether two devices can never be held at the same time, whatever
// their size. They may be two shares of one device. mig describes the GPU of both
// if they are on one GPU; partitions that are not in mig exclude each other.
//
//	             whole GPU   shares   time slices   seats   MIG device   monitor
//	whole GPU       ✗           ✗          ✗           ✗         ✗
//	shares                      ✓ ¹        ✗           ✗         ✗
//	time slices                            ✓ ¹         ✗         ✗
//	seats                                              ✓ ¹       ✗
//	MIG device                                                   ✓ ²
//	monitor         ✓           ✓          ✓           ✓         ✓            ✓
//
//	¹ as long as the device has memory for all of them
//	² in another place, or shares of it
func Excludes(mig gpu.MIG, a, b Holding) bool {
	switch {
	case a.Name.Kind.Scope() == ScopeNode, b.Name.Kind.Scope() == ScopeNode, a.Name.Address != b.Name.Address:
		return false
	case a.Name == b.Name:
		return !a.Divisible() || !b.Divisible()
	default:
		return !Apart(mig, a.Name, b.Name)
	}
}

// Apart reports whether two different devices of one GPU have no part of it in
// common: both are partitions, at known placements that do not overlap.
func Apart(mig gpu.MIG, a, b Name) bool {
	_, placeA, knownA := a.FindIn(mig)
	_, placeB, knownB := b.FindIn(mig)
	return knownA && knownB && !placeA.Overlaps(placeB)
}
