// SPDX-License-Identifier: Apache-2.0

// Package share has the terms on which a claim has a device: one type from the plan of a claim
// through its record to its status and metrics.
package share

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Terms are how a claim has a device. The zero value is all of the device, without limits. They
// are decided once and recorded: a change of flags must not change running containers.
type Terms struct {
	// Share is nil if the claim has all of the device's memory. It is also nil for
	// time slices without separate memory, and for a device without memory.
	Share *Amount `json:"share,omitempty"`
	// MPS is set if the processes on the device are clients of an MPS daemon.
	MPS *Client `json:"mps,omitempty"`
	// Limit is set if the driver limits the memory of each container.
	Limit *Limit `json:"limit,omitempty"`
	// Slots of time slices; 0 for none.
	Slots int `json:"slots,omitempty"`
	// TimeSlice that the claim asks for; empty if any will do.
	TimeSlice gpu.TimeSlice `json:"timeSlice,omitempty"`
	// Require is the least enforcement that the configuration accepts; empty for any.
	Require v1alpha1.Enforcement `json:"require,omitempty"`
	// Exclusive is set if the GPU is in EXCLUSIVE_PROCESS while the claim has the
	// share. Then only clients of its MPS daemon can use the GPU.
	Exclusive bool `json:"exclusive,omitempty"`
}

// Amount is the memory and compute that a claim takes of a device. A claim without a
// readable record has shares of unknown size, with 0 as the memory.
type Amount struct {
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

// IsUnknown reports whether only a CDI spec says that the claim has a share.
func (t Terms) IsUnknown() bool { return t.Share != nil && t.Share.Memory == 0 }

// Memory returns the memory of the share in bytes. It returns 0 for time slices that name
// none, for all of the device, and if it is unknown.
func (t Terms) Memory() uint64 {
	if t.Share == nil {
		return 0
	}
	return t.Share.Memory
}

// Strategy returns how the processes on a device of the kind share it. It returns "" if the
// claim has the device to itself without limits, or if the terms are unknown.
func (t Terms) Strategy(k kind.Kind) v1alpha1.Strategy {
	switch {
	case t.IsUnknown():
		return ""
	case t.MPS != nil:
		return v1alpha1.StrategyMPS
	case k.Takes() == kind.TakesSlots:
		return v1alpha1.StrategyTimeSlicing
	case t.Share != nil:
		return v1alpha1.StrategyPlain
	case t.TimeSlice != "":
		return v1alpha1.StrategyTimeSlicing
	}
	return ""
}

// ProcessMemory returns the most memory of the device that a process of the claim
// can have, in bytes. It is bounded by MPS and by the limit of its container. 0
// means no limit.
func (t Terms) ProcessMemory() uint64 {
	switch {
	case t.MPS != nil && t.MPS.MemoryLimit > 0:
		return t.MPS.MemoryLimit
	case t.Limit != nil:
		return t.Limit.Memory
	}
	return 0
}

// Enforcement returns how strictly the memory and the compute of the device are limited
// for the claim.
func (t Terms) Enforcement() (memory, compute v1alpha1.Enforcement) {
	memory, compute = v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if t.MPS != nil {
		memory, compute = v1alpha1.EnforcementCooperative, v1alpha1.EnforcementCooperative
	}
	if t.MPS != nil && t.MPS.Namespace != "" {
		compute = v1alpha1.EnforcementDaemon
	}
	if t.Limit != nil {
		memory = v1alpha1.EnforcementDriver
	}
	return memory, compute
}

// Data returns the terms in the form of the claim's status. It returns nil without
// a strategy.
func (t Terms) Data(k kind.Kind) *v1alpha1.ShareData {
	strategy := t.Strategy(k)
	if strategy == "" {
		return nil
	}
	data := &v1alpha1.ShareData{Strategy: strategy, Memory: size(t.Memory()), TimeSlice: v1alpha1.Interval(t.TimeSlice)}
	if t.Share != nil && k.Takes() != kind.TakesSlots {
		data.Compute = t.Share.Compute
	}
	if c := t.MPS; c != nil {
		data.Processes, data.ThreadPercentage, data.MemoryLimit = c.Processes, c.ThreadPercentage, size(c.MemoryLimit)
	}
	if l := t.Limit; l != nil {
		data.Containers, data.ContainerMemoryLimit = l.Containers, size(l.Memory)
	}
	data.MemoryEnforcement, data.ComputeEnforcement = t.Enforcement()
	data.Enforcement = data.MemoryEnforcement.Weaker(data.ComputeEnforcement)
	return data
}

func size(bytes uint64) *resource.Quantity {
	if bytes == 0 {
		return nil
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI)
}
