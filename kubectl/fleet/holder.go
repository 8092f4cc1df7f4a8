// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Holder is a claim's allocation of a device.
type Holder struct {
	Claim *resourceapi.ResourceClaim
	// Result is the allocation.
	Result resourceapi.DeviceRequestAllocationResult
	// Pods are the pods that use the claim, in order of their names.
	Pods []*corev1.Pod
}

// Admin reports whether the claim has the device without counting, to monitor it.
func (h Holder) Admin() bool { return h.Result.AdminAccess != nil && *h.Result.AdminAccess }

// Shared reports whether other claims may hold the device too.
func (h Holder) Shared() bool { return h.Result.ShareID != nil }

// Share returns the share that the agent reports for the claim. It returns nil if the claim has
// the device alone, or if the agent has reported nothing.
func (h Holder) Share() (limits *v1alpha1.ShareData, reported bool) {
	for _, status := range h.Claim.Status.Devices {
		if status.Driver != h.Result.Driver || status.Pool != h.Result.Pool || status.Device != h.Result.Device || status.Data == nil {
			continue
		}
		if status.ShareID != nil && h.Result.ShareID != nil && *status.ShareID != string(*h.Result.ShareID) {
			continue
		}
		var data v1alpha1.DeviceData
		if json.Unmarshal(status.Data.Raw, &data) == nil {
			return data.Share, true
		}
	}
	return nil, false
}

// Results returns the devices of a driver that a claim has; none if it has no allocation.
func Results(claim *resourceapi.ResourceClaim, driver string) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results), func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver != driver })
}

// Count adds an allocation to the state, as the scheduler does: a shared device counts by
// its capacity, any other one is taken.
func Count(state structured.AllocatedState, result resourceapi.DeviceRequestAllocationResult) {
	device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
	switch h := (Holder{Result: result}); {
	case h.Admin():
	case h.Shared():
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
	default:
		state.AllocatedDevices.Insert(device)
	}
}

// holders returns the allocations of each device, in order of the claims' names.
func holders(claims []*resourceapi.ResourceClaim, pods []*corev1.Pod) map[DeviceID][]Holder {
	consumers := newConsumers(pods)
	all := map[DeviceID][]Holder{}
	for _, claim := range slices.SortedFunc(slices.Values(claims), ByName) {
		if claim.Status.Allocation == nil {
			continue
		}
		users := consumers.podsOf(claim)
		for _, result := range claim.Status.Allocation.Devices.Results {
			id := DeviceID{result.Driver, result.Pool, result.Device}
			all[id] = append(all[id], Holder{Claim: claim, Result: result, Pods: users})
		}
	}
	return all
}
