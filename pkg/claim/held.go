// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// Held is a claim that holds devices of this node.
type Held struct {
	Ref
	Phase Phase
	// Devices of the claim. They are complete if the claim is prepared. If it is
	// [Unrecorded], only the names and GPUs are known, and which devices are shares.
	Devices []Device
	// Pods are the UIDs of the pods that the claim was reserved for whenever it was
	// prepared. More pods may use it.
	Pods []types.UID
	// stamp of the record that was read; zero for [Unrecorded].
	stamp store.Stamp
}

// Held returns the claims that hold devices, read from the disk and ordered by
// namespace, name and UID.
func (m *Manager) Held(ctx context.Context) ([]Held, error) {
	holders, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Held, len(holders))
	for i, h := range holders {
		devices, err := devicesOf(h.Record)
		if err != nil {
			return nil, err
		}
		all[i] = Held{Ref: h.Claim, Phase: h.Phase, Devices: devices, Pods: h.Pods, stamp: h.Stamp}
	}
	return all, nil
}

// LostSpec reports whether a prepared claim has no CDI spec. [Manager.Recover] writes it again.
func (m *Manager) LostSpec(ctx context.Context) (bool, error) {
	holders, err := m.journal.Holders(ctx)
	if err != nil {
		return false, err
	}
	specs, err := m.options.CDI.List(ctx)
	return slices.ContainsFunc(holders, func(h journal.Holder) bool {
		return h.Phase == Prepared && !slices.Contains(specs, h.Claim.UID)
	}), err
}

// devicesOf returns the devices of a record, with their CDI device IDs if the record
// has them.
func devicesOf(r *journal.Record) ([]Device, error) {
	ids, err := r.CDIDeviceIDs()
	if err != nil {
		return nil, err
	}
	devices := make([]Device, len(r.Devices))
	for i, a := range r.Devices {
		devices[i] = Device{
			Request: a.Request, Class: a.Class, Pool: a.Pool, Name: a.Name, ShareID: a.ShareID,
			Share: shareOf(a),
		}
		if devices[i].UUID, err = r.DeviceUUID(a); err != nil {
			return nil, err
		}
		if ids != nil {
			devices[i].CDIDeviceIDs = []string{ids[i]}
		}
	}
	return devices, nil
}

// shareOf returns how a device is shared, or nil if the claim has it to itself
// without limits.
func shareOf(a plan.Device) *Share {
	s := Share{TimeSlice: a.TimeSlice}
	s.MemoryEnforcement, s.ComputeEnforcement = a.Enforcement()
	switch {
	case a.Share != nil && a.Share.Memory == 0:
		return &Share{}
	case a.Name.Kind.Takes() == kind.TakesSlots:
		s.Strategy, s.Slots = v1alpha1.StrategyTimeSlicing, a.Slots
		if a.Share != nil {
			s.Memory = a.Share.Memory
		}
	case a.Share != nil:
		s.Strategy, s.Memory, s.Compute = v1alpha1.StrategyPlain, a.Share.Memory, a.Share.Compute
	case a.TimeSlice != "":
		s.Strategy = v1alpha1.StrategyTimeSlicing
	case a.MPS == nil:
		return nil
	}
	if a.MPS != nil {
		s.Strategy = v1alpha1.StrategyMPS
		s.Processes, s.ThreadPercentage, s.MemoryLimit = a.MPS.Processes, a.MPS.ThreadPercentage, a.MPS.MemoryLimit
	}
	if a.Limit != nil {
		s.ContainerMemoryLimit, s.Containers = a.Limit.Memory, a.Limit.Containers
	}
	return &s
}
