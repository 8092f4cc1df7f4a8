// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// claimKind is a kind of claim.
type claimKind struct {
	name string
	// devices of the claim; nil for pods without one.
	devices *resourceapi.DeviceClaim
	// gpus is the part of a node that such a claim holds, in GPUs.
	gpus float64
}

func claimKinds() []claimKind {
	return []claimKind{
		{name: "none"},
		{name: "whole", devices: request("gpu.nvidia.com", "", "", 1), gpus: 1},
		{name: "linked", devices: linked(4), gpus: 4},
		{name: "share-5Gi", devices: request("mps.nvidia.com", "", "5Gi", 1), gpus: 1. / 16},
		{name: "share", devices: request("mps.nvidia.com", "", "10Gi", 1), gpus: 1. / 8},
		{name: "share-20Gi", devices: request("mps.nvidia.com", "", "20Gi", 1), gpus: 1. / 4},
		{name: "slot", devices: request("timeslice.nvidia.com", "", "", 1), gpus: 1. / 4},
		{name: "mig", devices: request("mig.nvidia.com", "1g.10gb", "", 1), gpus: 1. / 8},
		{name: "mig-class", devices: request("mig-1g.10gb", "", "", 1), gpus: 1. / 8},
		{name: "mig-2g", devices: request("mig.nvidia.com", "2g.20gb", "", 1), gpus: 1. / 4},
		{name: "mig-3g", devices: request("mig.nvidia.com", "3g.40gb", "", 1), gpus: 1. / 2},
	}
}

func kindNames() []string {
	var names []string
	for _, k := range claimKinds() {
		names = append(names, k.name)
	}
	return names
}

// request returns a claim for devices of a class: of a MIG profile, or with an amount of
// memory, if these are not empty.
func request(class, profile, memory string, count int64) *resourceapi.DeviceClaim {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	if profile != "" {
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes['gpu.nvidia.com'].profile == '%s'", profile),
		}}}
	}
	if memory != "" {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
	}
	return &resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}}
}

// linked returns a claim for GPUs of one NVLink domain.
func linked(count int64) *resourceapi.DeviceClaim {
	claim := request("gpu.nvidia.com", "", "", count)
	domain := resourceapi.FullyQualifiedName("gpu.nvidia.com/nvlinkDomain")
	claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &domain}}
	return claim
}
