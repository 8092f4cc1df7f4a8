// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeviceData is the JSON object in status.devices[].data of a claim. It describes the
// device, and the claim's share of it. A later release may add fields; readers ignore
// fields that they do not know.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DeviceData struct {
	metav1.TypeMeta `json:",inline"`
	// UUID is NVML's UUID of the GPU or MIG device: "GPU-" or "MIG-" and 36
	// characters; absent for all GPUs of a node.
	UUID string `json:"uuid,omitempty"`
	// PCIBusID is the PCI address of the GPU, such as "0000:1b:00.0"; absent for all
	// GPUs of a node.
	PCIBusID string `json:"pciBusID,omitempty"`
	// Share says how the device is shared; absent if the claim has the device alone.
	Share *ShareData `json:"share,omitempty"`
}

// ShareData is how a device is shared, and what limits the claim's processes.
type ShareData struct {
	// Strategy is [StrategyMPS], [StrategyPlain] or [StrategyTimeSlicing].
	Strategy Strategy `json:"strategy"`
	// Memory is the memory that the scheduler has promised; absent if it has
	// promised none.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Compute is the compute that the scheduler has promised, in percent of the SMs.
	// It is absent if the scheduler has promised none.
	Compute int `json:"compute,omitempty"`
	// Processes is the number of processes among which memory and compute are
	// divided; absent if they are not.
	Processes int `json:"processes,omitempty"`
	// ThreadPercentage is the part of the SMs that each process can use, in percent.
	// It is absent if there is no such limit.
	ThreadPercentage int `json:"threadPercentage,omitempty"`
	// MemoryLimit is the memory that each process can use, its context included;
	// absent if nothing limits it.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
	// TimeSlice is the interval that the claim's configuration names; absent if it
	// names none.
	TimeSlice Interval `json:"timeSlice,omitempty"`
	// Containers is the number of containers among which the memory is divided. It is
	// absent if the driver does not limit it.
	Containers int `json:"containers,omitempty"`
	// ContainerMemoryLimit is the memory that each container can use, contexts
	// included. It is absent if the driver does not limit it.
	ContainerMemoryLimit *resource.Quantity `json:"containerMemoryLimit,omitempty"`
	// Enforcement is how strictly the share is limited: the weaker of
	// MemoryEnforcement and ComputeEnforcement.
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// MemoryEnforcement is how strictly the memory is limited: [EnforcementDriver],
	// [EnforcementCooperative] or [EnforcementNone].
	MemoryEnforcement Enforcement `json:"memoryEnforcement,omitempty"`
	// ComputeEnforcement is how strictly the compute is limited: [EnforcementDaemon],
	// [EnforcementCooperative] or [EnforcementNone].
	ComputeEnforcement Enforcement `json:"computeEnforcement,omitempty"`
}

// NewDeviceData returns a DeviceData with its apiVersion and kind.
func NewDeviceData() *DeviceData { return &DeviceData{TypeMeta: typeMeta(KindDeviceData)} }
