// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Objects are the API objects of a cluster that concern its devices. A list is empty if
// the caller may not read it; its contents are then missing in all results.
type Objects struct {
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	Claims     []*resourceapi.ResourceClaim
	Classes    []*resourceapi.DeviceClass
	Slices     []*resourceapi.ResourceSlice
	TaintRules []*resourceapi.DeviceTaintRule
}

// Options are the settings of a [Fleet].
type Options struct {
	// Driver is the name of this driver in the cluster.
	Driver string
	// Features are the features of the cluster's scheduler.
	Features structured.Features
	// SearchLimit bounds the search for devices on one node; 0 means a second. The scheduler
	// searches for ten, but a search that takes one does not end in ten either; see
	// docs/user/shapes.md.
	SearchLimit time.Duration
}

// FeaturesOf returns the features of the cluster's scheduler. They are the ones of Kubernetes
// 1.37 without alpha gates: without one of them, the API server removes its fields. Lists in
// attributes, which are an alpha feature, are enabled if a device has one.
func FeaturesOf(o Objects) structured.Features {
	return structured.Features{
		AdminAccess:             true,
		ConsumableCapacity:      true,
		DeviceBindingAndStatus:  true,
		DeviceTaints:            true,
		FractionalCapacityRange: true,
		ListTypeAttributes:      slices.ContainsFunc(o.Slices, hasLists),
		PartitionableDevices:    true,
		PrioritizedList:         true,
	}
}

func hasLists(slice *resourceapi.ResourceSlice) bool {
	for _, device := range slice.Spec.Devices {
		for _, v := range device.Attributes {
			if v.StringValues != nil || v.IntValues != nil || v.BoolValues != nil || v.VersionValues != nil {
				return true
			}
		}
	}
	return false
}

// HasOtherDriver reports whether another driver of the same name publishes devices of a
// node. It also returns true if one of the claims was allocated such a device. Both drivers
// replace each other's slices, so a device may be in a claim only.
func (o Objects) HasOtherDriver(driver, node string, claims ...*resourceapi.ResourceClaim) bool {
	return slices.ContainsFunc(o.Slices, func(slice *resourceapi.ResourceSlice) bool {
		return slice.Spec.Driver == driver && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node &&
			slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return isForeign(d.Name) })
	}) || slices.ContainsFunc(claims, func(claim *resourceapi.ResourceClaim) bool {
		return slices.ContainsFunc(Results(claim, driver), func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Pool == node && isForeign(r.Device) })
	})
}

// isForeign reports whether no agent of this driver publishes a device of that name.
func isForeign(device string) bool {
	return NameOf(device) == kind.Name{}
}
