// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
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
