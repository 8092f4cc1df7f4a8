// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Version of the records that this release writes. It rises if an older release
// would misread or wrongly undo a record: with every new step and every new meaning,
// not with a field that the older release can ignore.
//
//	1  WriteCDI
//	2  EnsureMIGMode, CreatePartition, and steps that name a device
//	3  SetTimeSlice, StartMPS, and devices that claims share
//	4  a device that is on no GPU and excludes no other device
//	5  LimitMemory, SetComputeMode, namespaces of MPS daemons, time slices with
//	   memory, and seats
const Version = 5

// Ref names a claim.
type Ref struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String returns the name as people search for it: "team-a/one-gpu (UID …)".
func (r Ref) String() string { return fmt.Sprintf("%s/%s (UID %s)", r.Namespace, r.Name, r.UID) }

// Record is all that is remembered of a claim: facts only.
type Record struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"`
	Claim   Ref    `json:"claim"`
	// Devices in the order of the allocation.
	Devices []Device `json:"devices"`
	// Journal holds the steps of the plan in their order.
	Journal []Entry `json:"journal"`
	// Unpreparing is set if undoing has begun and must be finished.
	Unpreparing bool `json:"unpreparing,omitempty"`
	// Adopted is set if the previous record was lost while the claim had all of its
	// devices and a CDI spec.
	Adopted bool `json:"adopted,omitempty"`
	// Pods are the UIDs of the pods that the claim was reserved for whenever it was
	// prepared, in ascending order. More pods may use it.
	Pods []types.UID `json:"pods,omitempty"`
}

// Device is one allocation result and how the claim uses the device.
type Device struct {
	Request string `json:"request"`
	// Class is the DeviceClass of the request; empty in records of older releases.
	Class   string     `json:"class,omitempty"`
	Pool    string     `json:"pool"`
	Name    string     `json:"device"`
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
	Daemon string `json:"daemon"`
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

// Holding returns the device as the claim holds it. name is the parsed name of the
// device.
func (d Device) Holding(name kind.Name) kind.Holding {
	return kind.Holding{Name: name, Share: d.Share != nil}
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
func (d Device) IsShared(name kind.Name) bool { return d.Holding(name).Divisible() }

// HasAllocation reports whether both records hold the same allocation results in
// the same order.
func (r *Record) HasAllocation(of *Record) bool {
	return slices.EqualFunc(r.Devices, of.Devices, Device.IsSame)
}

// AddPods adds pods, and reports whether any of them is new to the record.
func (r *Record) AddPods(pods []types.UID) bool {
	before := len(r.Pods)
	r.Pods = append(slices.Clone(r.Pods), pods...)
	slices.Sort(r.Pods)
	r.Pods = slices.Compact(r.Pods)
	return len(r.Pods) > before
}

// DeviceNames returns the names of the devices in the order of the allocation.
func (r *Record) DeviceNames() []string {
	var names []string
	for _, d := range r.Devices {
		names = append(names, d.Name)
	}
	return names
}

// Names returns the parsed names of the devices in the order of the allocation.
func (r *Record) Names() ([]kind.Name, error) {
	names := make([]kind.Name, len(r.Devices))
	for i, d := range r.Devices {
		var err error
		if names[i], err = kind.Parse(d.Name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// IsDone reports whether all steps are done.
func (r *Record) IsDone() bool {
	return !slices.ContainsFunc(r.Journal, func(e Entry) bool { return e.State != Done })
}

// Has reports whether the journal has the step for the device.
func (r *Record) Has(step, device string) bool {
	return slices.ContainsFunc(r.Journal, func(e Entry) bool { return e.Step == step && e.Device == device })
}

// Taken returns the memory of a claim's shares of a device, and the number of MPS
// clients that they admit.
func (r *Record) Taken(device string) (memory uint64, clients int) {
	for _, d := range r.Devices {
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
