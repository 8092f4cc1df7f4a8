// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// shareSeparator is in no name of a device.
const shareSeparator = "_"

// Injected is a device of a claim as the ID of its CDI device names it.
type Injected struct {
	Claim  types.UID
	Device kind.Name
	// Share is nil unless other claims may use the device at the same time.
	Share *types.UID
}

// ParseInjectionID returns the claim and the device of a CDI device ID. The error wraps
// [gpu.ErrInvalid] if the ID is of another form.
func ParseInjectionID(id string) (Injected, error) {
	whole, share, shared := strings.Cut(id, shareSeparator)
	for i := range whole {
		if whole[i] != '-' {
			continue
		}
		if name, err := kind.Parse(whole[i+1:]); err == nil && i > 0 {
			injected := Injected{Claim: types.UID(whole[:i]), Device: name}
			if shared {
				injected.Share = (*types.UID)(&share)
			}
			return injected, nil
		}
	}
	return Injected{}, fmt.Errorf("CDI device %q: %w: it names no device of a claim", id, gpu.ErrInvalid)
}

// InjectionID returns the unqualified CDI device ID of a device of the claim. It is unique
// over time, because runtimes may cache the meaning of an ID. A claim can have several shares
// of a device, so the ID of a share names the share too; the spec alone then distinguishes
// shares from whole devices.
func (d Device) InjectionID(claim types.UID) string {
	id := string(claim) + "-" + d.Name.String()
	if d.IsShared() && d.ShareID != nil {
		id += shareSeparator + string(*d.ShareID)
	}
	return id
}
