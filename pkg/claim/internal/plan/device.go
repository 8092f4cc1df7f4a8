// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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

// Plan is how a claim uses its devices: a value that [Make] decides and nothing changes. It
// is a part of the claim's record.
type Plan struct {
	Claim Ref `json:"claim"`
	// Devices in the order of the allocation.
	Devices []Device `json:"devices"`
}

// Device is one allocation result and how the claim uses the device.
type Device struct {
	Request string `json:"request"`
	// Class is the DeviceClass of the request; empty in records of older releases.
	Class   string     `json:"class,omitempty"`
	Pool    string     `json:"pool"`
	Name    kind.Name  `json:"device"`
	ShareID *types.UID `json:"shareID,omitempty"`
	// UUID of the GPU that the device is on; empty if the device is all GPUs.
	UUID string `json:"uuid"`
	// Share is nil if the claim has all of the device's memory, time slices without
	// memory of their own, or a device without memory.
	Share *Share `json:"share,omitempty"`
	// MPS is set if the processes on the device are clients of an MPS daemon.
	MPS *Client `json:"mps,omitempty"`
	// Limit is set if the driver limits the memory of each container.
	Limit *Limit `json:"limit,omitempty"`
	// Slots of time slices; 0 for none, and in records of older releases.
	Slots int `json:"slots,omitempty"`
	// TimeSlice that the claim asks for; empty if any will do.
	TimeSlice gpu.TimeSlice `json:"timeSlice,omitempty"`
	// Require is the least enforcement that the configuration accepts; empty for any, and in
	// records of older releases.
	Require v1alpha1.Enforcement `json:"require,omitempty"`
	// Exclusive is set if the GPU is in EXCLUSIVE_PROCESS while the claim has the
	// share, so that only clients of its MPS daemon can use it.
	Exclusive bool `json:"exclusive,omitempty"`
}

// Share is the memory and compute that a claim takes of a device. A claim without a
// readable record has shares of unknown size, with 0 as the memory.
type Share struct {
	Memory uint64 `json:"memory"` // bytes
	// Compute in percent of the multiprocessors, 0 if the claim named none.
	Compute int `json:"compute,omitempty"`
}

// Limit is the memory limit of the containers that use a device. It is decided once: the
// hook of the claim's CDI spec sets it for every container, also after an update of the
// agent.
type Limit struct {
	// Memory of each container in bytes.
	Memory uint64 `json:"memory"`
	// Containers is the number of containers at a time.
	Containers int `json:"containers"`
}

// Client names the MPS daemon of the processes on a device, and the limits of each
// process. It is decided once: a change of flags must not change running processes.
type Client struct {
	// Daemon is named after its first device, or after the GPU of its seats.
	Daemon kind.Name `json:"daemon"`
	// Processes at a time among which the limits were divided; 0 if they are not
	// counted.
	Processes int `json:"processes,omitempty"`
	// ThreadPercentage is 0 for no limit.
	ThreadPercentage int `json:"threadPercentage,omitempty"`
	// MemoryLimit in bytes, 0 for no limit.
	MemoryLimit uint64 `json:"memoryLimit,omitempty"`
	// Namespace of the daemon that the processes are clients of, with MPS protocol 3;
	// empty with protocol 2.
	Namespace string `json:"namespace,omitempty"`
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

// ProcessMemory returns the most memory that a process of the claim can have of the
// device by MPS and by the limit of its container, in bytes; 0 for no limit.
func (d Device) ProcessMemory() uint64 {
	switch {
	case d.MPS != nil && d.MPS.MemoryLimit > 0:
		return d.MPS.MemoryLimit
	case d.Limit != nil:
		return d.Limit.Memory
	}
	return 0
}

// IsShared reports whether other claims may use the device at the same time.
func (d Device) IsShared() bool { return d.Holding().Divisible() }

// Enforcement returns how strictly the memory and the compute of the device are limited
// for the claim.
func (d Device) Enforcement() (memory, compute v1alpha1.Enforcement) {
	memory, compute = v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if d.MPS != nil {
		memory, compute = v1alpha1.EnforcementCooperative, v1alpha1.EnforcementCooperative
	}
	if d.MPS != nil && d.MPS.Namespace != "" {
		compute = v1alpha1.EnforcementDaemon
	}
	if d.Limit != nil {
		memory = v1alpha1.EnforcementDriver
	}
	return memory, compute
}

// HasAllocation reports whether both plans are for the same allocation results in the same
// order.
func (p Plan) HasAllocation(of Plan) bool {
	return slices.EqualFunc(p.Devices, of.Devices, Device.IsSame)
}

// Names returns the names of the devices in the order of the allocation.
func (p Plan) Names() []kind.Name {
	names := make([]kind.Name, len(p.Devices))
	for i, d := range p.Devices {
		names[i] = d.Name
	}
	return names
}

// Taken returns the memory of a claim's shares of a device, and the number of MPS
// clients that they admit.
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
