// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Ref names a claim.
type Ref struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String returns the name as people search for it: "team-a/one-gpu (UID …)".
func (r Ref) String() string { return fmt.Sprintf("%s/%s (UID %s)", r.Namespace, r.Name, r.UID) }

// Plan is how a claim uses its devices, an immutable value. [Make] decides it, and
// [Against] returns one that fits the other holders. It is a part of the claim's record.
type Plan struct {
	Claim Ref `json:"claim"`
	// Devices in the order of the allocation.
	Devices []Device `json:"devices"`
}

// Device is one allocation result and how the claim uses the device.
type Device struct {
	Request string `json:"request"`
	// Class is the DeviceClass of the request.
	Class   string     `json:"class,omitempty"`
	Pool    string     `json:"pool"`
	Name    kind.Name  `json:"device"`
	ShareID *types.UID `json:"shareID,omitempty"`
	// UUID of the GPU that the device is on; empty if the device is all GPUs.
	UUID string `json:"uuid"`
	share.Terms
}

// IsSame reports whether both are the same allocation result.
func (d Device) IsSame(other Device) bool {
	return d.Request == other.Request && d.Pool == other.Pool && d.Name == other.Name && IsSameShare(d.ShareID, other.ShareID)
}

// IsSameShare reports whether both name the same share, or neither names one.
func IsSameShare(a, b *types.UID) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Holding returns the device as the claim holds it.
func (d Device) Holding() kind.Holding {
	return kind.Holding{Name: d.Name, Share: d.Share != nil}
}

// IsShared reports whether other claims may use the device at the same time.
func (d Device) IsShared() bool { return d.Holding().Divisible() }

// HasAllocation reports whether both plans are for the same allocation results in the same
// order.
func (p Plan) HasAllocation(other Plan) bool {
	return slices.EqualFunc(p.Devices, other.Devices, Device.IsSame)
}

// Names returns the names of the devices in the order of the allocation.
func (p Plan) Names() []kind.Name {
	names := make([]kind.Name, len(p.Devices))
	for i, d := range p.Devices {
		names[i] = d.Name
	}
	return names
}

// Taken returns the memory of a claim's shares of a device, and their number of MPS
// clients.
func (p Plan) Taken(device kind.Name) (memory uint64, clients int) {
	for _, d := range p.Devices {
		if d.Name != device || d.Share == nil {
			continue
		}
		memory += d.Share.Memory
		if d.MPS != nil {
			clients += d.MPS.Processes
		}
	}
	return memory, clients
}
