// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// excludes reports whether two devices cannot be held at the same time however
// small they are. They may be two shares of one device; see [kind.Excludes].
// Partitions of a GPU that cannot be read exclude each other.
func (in Inputs) excludes(a, b Device) bool {
	g, err := in.gpuAt(a.Name.Address)
	if err != nil {
		g = use.GPU{}
	}
	return kind.Excludes(g.MIG, a.Holding(), b.Holding())
}

// checkCombination returns an error if a device conflicts with another device of the
// claim.
func (in Inputs) checkCombination(device Device, others []Device) error {
	for _, other := range others {
		switch {
		case device.Name == other.Name && (!device.IsShared() || !other.IsShared() || IsSameShare(device.ShareID, other.ShareID)):
			return fmt.Errorf("%w: allocated twice in this claim, and there is only one of it", gpu.ErrInvalid)
		case in.excludes(device, other):
			return fmt.Errorf("%w: conflicts with %s in the same claim", gpu.ErrInvalid, other.Name)
		case device.TimeSlice != "" && other.TimeSlice != "" && device.TimeSlice != other.TimeSlice && device.Name.Address == other.Name.Address:
			return fmt.Errorf("%w: the claim's configurations want the time slices %s and %s of one GPU", gpu.ErrInvalid, other.TimeSlice, device.TimeSlice)
		}
	}
	return nil
}

// Holder is another claim that holds devices.
type Holder struct {
	Plan
	// Phase of the claim, for people.
	Phase string
	// Daemons of MPS that the claim may have begun to use, also before its record was lost.
	Daemons []kind.Name
}

// Against compares the plan with the other claims that hold devices now. It returns the
// plan with the MPS protocol of their shares. The error says which device another claim
// holds, or one that conflicts with it. It wraps [gpu.ErrInUse] unless waiting is of no
// use.
func Against(p Plan, inputs Inputs, others []Holder) (Plan, error) {
	for i, want := range p.Devices {
		for _, other := range others {
			if err := inputs.checkHolder(want, other); err != nil {
				return p, fmt.Errorf("device %s: %w", want.Name, err)
			}
		}
		first := slices.IndexFunc(p.Devices, func(d Device) bool { return d.Name == want.Name && d.Share != nil })
		if first == i {
			if err := inputs.checkCapacity(p, want.Name, others); err != nil {
				return p, fmt.Errorf("device %s: %w", want.Name, err)
			}
		}
	}
	return p.following(others)
}

// checkHolder returns an error if the devices of another claim conflict with a device.
func (in Inputs) checkHolder(want Device, other Holder) error {
	for _, d := range other.Devices {
		holder := []any{"holder", other.Claim}
		if in.excludes(want, d) {
			return Refuse(fmt.Errorf("%w: another claim holds %s (%s); it is free when the pods of that claim have ended", gpu.ErrInUse, d.Name, strings.ToLower(other.Phase)), holder...)
		}
		if want.TimeSlice != "" && d.TimeSlice != "" && want.TimeSlice != d.TimeSlice && want.Name.Address == d.Name.Address {
			return Refuse(fmt.Errorf("%w with the time slice %s by another claim; a GPU has one time slice for all: use %s or leave the interval out", gpu.ErrInUse, d.TimeSlice, d.TimeSlice), holder...)
		}
		// The size of a share of a claim without a readable record is 0, and its
		// processes may be clients of MPS.
		if want.Exclusive && want.Name == d.Name && d.MPS == nil && d.Share != nil && d.Share.Memory > 0 {
			return Refuse(fmt.Errorf("%w by a plain share of another claim, whose processes could not use the GPU in %s; it is free when the pods of that claim have ended", gpu.ErrInUse, gpu.ComputeModeExclusiveProcess), holder...)
		}
	}
	return nil
}

// checkCapacity returns an error if the shares of a device together exceed the
// device. The limits are its memory, and the clients that MPS admits.
func (in Inputs) checkCapacity(p Plan, name kind.Name, others []Holder) error {
	taken, clients := p.Taken(name)
	var holding []Ref
	var before uint64
	beforeClients := 0
	for _, other := range others {
		memory, processes := other.Taken(name)
		before, beforeClients = before+memory, beforeClients+processes
		if memory > 0 {
			holding = append(holding, other.Claim)
		}
	}
	g, err := in.gpuAt(name.Address)
	if err != nil {
		return err
	}
	all, err := in.memoryOf(g.GPU, name, true)
	if err != nil {
		return err
	}
	admitted := maxClients(g.GPU, name)
	switch {
	case before+taken > uint64(all.Value()) && len(holding) > 0:
		return Refuse(
			fmt.Errorf("%w: %s of its %s memory are wanted, and %s are held by %s", gpu.ErrInUse, inBytes(taken), all.String(), inBytes(before), otherClaims(len(holding))),
			"holders", holding)
	case taken > uint64(all.Value()):
		return fmt.Errorf("%w: the claim's shares have %s memory together, and the device has %s", gpu.ErrInvalid, inBytes(taken), all.String())
	case clients > 0 && beforeClients+clients > admitted:
		return Refuse(
			fmt.Errorf("%w: MPS admits %d processes to the device at a time; shares for %d are held by %s, and this claim is for %d more; see %s",
				gpu.ErrNoCapacity, admitted, beforeClients, otherClaims(len(holding)), clients, gpu.Page("docs/user/events.md#when-a-share-does-not-start")),
			"holders", holding)
	}
	return nil
}

// otherClaims counts other claims, whose names are for administrators.
func otherClaims(n int) string {
	if n == 1 {
		return "one other claim"
	}
	return fmt.Sprintf("%d other claims", n)
}
