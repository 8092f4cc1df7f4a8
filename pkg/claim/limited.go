// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// LimitedDevice is a device of a claim whose containers have a memory limit.
type LimitedDevice struct {
	Claim  Ref
	Device kind.Name
	// ID names the device in the folder of memory limits. A claim can have several
	// shares of a device.
	ID string
}

// LimitedDevices returns the devices of claims whose containers have a memory limit. The order
// is by namespace, name and UID of the claim, and by ID.
func (m *Manager) LimitedDevices(ctx context.Context) ([]LimitedDevice, error) {
	if m.options.Limits == nil {
		return nil, nil
	}
	ids, err := m.options.Limits.Folder.Devices()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	holders, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, err
	}
	var all []LimitedDevice
	for _, h := range holders {
		for _, id := range ids {
			if injected, err := plan.ParseInjectionID(id); err == nil && injected.Claim == h.Claim.UID {
				all = append(all, LimitedDevice{Claim: h.Claim, Device: injected.Device, ID: id})
			}
		}
	}
	return all, nil
}
