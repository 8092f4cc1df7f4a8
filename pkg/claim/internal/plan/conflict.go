// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// excludes reports whether two devices, or two shares of one, cannot be held at the
// same time however small they are; see [kind.Excludes]. Partitions of a GPU that
// cannot be read exclude each other.
func (f Facts) excludes(a journal.Device, nameA kind.Name, b journal.Device, nameB kind.Name) bool {
	g, err := f.gpuAt(nameA.Address)
	if err != nil {
		g = gpu.GPU{}
	}
	return kind.Excludes(g.MIG, a.Holding(nameA), b.Holding(nameB))
}

// checkCombination returns an error if a device conflicts with another device of the
// claim. The names of these are in the plan already.
func (p *Plan) checkCombination(device journal.Device, name kind.Name, others []journal.Device) error {
	for i, other := range others {
		otherName := p.Names[i]
		switch {
		case name == otherName && (!device.IsShared(name) || !other.IsShared(name) || journal.IsSameShare(device.ShareID, other.ShareID)):
			return fmt.Errorf("%w: allocated twice in this claim, and there is only one of it", gpu.ErrInvalid)
		case p.facts.excludes(device, name, other, otherName):
			return fmt.Errorf("%w: conflicts with %s in the same claim", gpu.ErrInvalid, other.Name)
		case device.TimeSlice != "" && other.TimeSlice != "" && device.TimeSlice != other.TimeSlice && name.Address == otherName.Address:
			return fmt.Errorf("%w: the claim's configurations want the time slices %s and %s of one GPU", gpu.ErrInvalid, other.TimeSlice, device.TimeSlice)
		}
	}
	return nil
}

// CheckFree returns an error if another claim holds a device of the plan, or one that
// conflicts with it. The error wraps [gpu.ErrInUse] unless waiting is of no use.
func (p *Plan) CheckFree(others []journal.Holder) error {
	for i, want := range p.Record.Devices {
		for _, other := range others {
			if err := p.checkHolder(want, p.Names[i], other); err != nil {
				return fmt.Errorf("device %s: %w", want.Name, err)
			}
		}
		first := slices.IndexFunc(p.Record.Devices, func(d journal.Device) bool { return d.Name == want.Name && d.Share != nil })
		if first == i {
			if err := p.checkCapacity(p.Names[i], others); err != nil {
				return fmt.Errorf("device %s: %w", want.Name, err)
			}
		}
	}
	return nil
}

// checkHolder returns an error if the devices of another claim conflict with a device.
func (p *Plan) checkHolder(want journal.Device, name kind.Name, other journal.Holder) error {
	for k, d := range other.Devices {
		holder := []any{"holder", other.Claim}
		if p.facts.excludes(want, name, d, other.Names[k]) {
			return Refuse(fmt.Errorf("%w: another claim holds %s (%s); it is free when the pods of that claim have ended", gpu.ErrInUse, d.Name, strings.ToLower(string(other.Phase))), holder...)
		}
		if want.TimeSlice != "" && d.TimeSlice != "" && want.TimeSlice != d.TimeSlice && name.Address == other.Names[k].Address {
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

// checkCapacity returns an error if the shares of a device, all taken together, have
// more memory than the device or more clients than MPS admits.
func (p *Plan) checkCapacity(name kind.Name, others []journal.Holder) error {
	device := name.String()
	taken, clients := p.Record.Taken(device)
	var holding []journal.Ref
	var before uint64
	beforeClients := 0
	for _, other := range others {
		memory, processes := other.Taken(device)
		before, beforeClients = before+memory, beforeClients+processes
		if memory > 0 {
			holding = append(holding, other.Claim)
		}
	}
	g, err := p.facts.gpuAt(name.Address)
	if err != nil {
		return err
	}
	all, err := p.facts.memoryOf(g, name, true)
	if err != nil {
		return err
	}
	admitted := maxClients(g, name)
	switch {
	case before+taken > uint64(all.Value()) && len(holding) > 0:
		return Refuse(
			fmt.Errorf("%w: %s of its %s memory are wanted, and %s are held by %s", gpu.ErrInUse, inBytes(taken), all.String(), inBytes(before), otherClaims(len(holding))),
			"holders", holding)
	case taken > uint64(all.Value()):
		return fmt.Errorf("%w: the claim's shares have %s memory together, and the device has %s", gpu.ErrInvalid, inBytes(taken), all.String())
	case clients > 0 && beforeClients+clients > admitted:
		return Refuse(
			fmt.Errorf("%w: MPS admits %d processes to the device at a time; shares for %d are held by %s, and this claim is for %d more; let it go to another device, or have fewer processes in the ShareConfig",
				gpu.ErrNoCapacity, admitted, beforeClients, otherClaims(len(holding)), clients),
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
