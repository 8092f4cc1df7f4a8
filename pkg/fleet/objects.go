// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Objects are the API objects of a cluster that concern its devices. A list may be empty
// because the caller may not read it; the checks then lack what it would show.
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
}
