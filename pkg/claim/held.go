// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
)

// Claim is a claim that holds devices of this node.
type Claim struct {
	Ref
	Phase Phase
	// Devices of the claim. They are complete if the claim is prepared. If it is
	// [Unrecorded], only the names and GPUs are known, and which devices are shares.
	Devices []Device
	// Pods are the UIDs of the pods that were seen with the claim. More pods may use it.
	Pods []types.UID
	// stamp of the record that was read; zero for [Unrecorded].
	stamp store.Stamp
}

// Held returns the claims that hold devices, read from the disk and ordered by
// namespace, name and UID.
func (m *Manager) Held(ctx context.Context) ([]Claim, error) {
	holders, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Claim, len(holders))
	for i, h := range holders {
		devices, err := devicesOf(h.Record)
		if err != nil {
			return nil, err
		}
		all[i] = Claim{Ref: h.Claim, Phase: h.Phase, Devices: devices, Pods: h.Pods, stamp: h.Stamp}
	}
	return all, nil
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
			Terms: a.Terms,
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
