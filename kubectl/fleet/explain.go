// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// Verdict is whether claims fit on a node, and how near they are to that.
type Verdict struct {
	Node string
	// Allocations has one for each claim; nil if they do not fit.
	Allocations []resourceapi.AllocationResult
	// Missing are the conditions without which the claims would fit. It is nil if they
	// fit, or if nothing would help because the node has too few devices.
	Missing []Condition
	// Excluded are the reasons why the pod cannot run on the node, a sentence each. Reasons
	// about free devices are not among them. Its devices are then not searched.
	Excluded []string
	// Taints are the taints of the node that keep the pod away. Excluded has a sentence for each.
	Taints []corev1.Taint
	// Problem is set if the node's devices cannot be searched: the search does not end, the
	// allocator refuses the claims or a pool, or a pool is incomplete. It wraps one of the
	// sentinel errors, and [ErrNotExamined] if the node was not reached.
	Problem error

	// distance orders verdicts: 0 if the claims fit.
	distance int
}

// Fits reports whether the claims fit.
func (v Verdict) Fits() bool { return v.Allocations != nil }

// misses are the sets of conditions that are dropped to find the nearest miss, the nearest
// first: conditions that end with other claims, then taints, then conditions of the claim.
var misses = [][]Condition{
	{ConditionHolders},
	{ConditionTaints},
	{ConditionTaints, ConditionHolders},
	{ConditionConstraints},
	{ConditionConstraints, ConditionHolders},
	{ConditionConstraints, ConditionTaints, ConditionHolders},
	{ConditionSelectors, ConditionConstraints, ConditionTaints, ConditionHolders},
	{ConditionSize, ConditionSelectors, ConditionConstraints, ConditionTaints, ConditionHolders},
	conditions,
}

// mostUnended bounds the nodes on which a search may reach its limit. A shape of claims
// that does so on one node does so on many.
const mostUnended = 5

func withoutAllocation(claims []*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
	return slices.DeleteFunc(slices.Clone(claims), func(c *resourceapi.ResourceClaim) bool { return c.Status.Allocation != nil })
}

// DeviceCheck is whether a device meets a request.
type DeviceCheck struct {
	Device Device
	// Missing are the separate conditions that the device does not meet. It is empty if the
	// device meets the request. A device of another class or of an unusable pool is not
	// examined for others.
	Missing []Condition
	// Pool is the reason why the scheduler allocates no device of the pool.
	Pool error
	// Selectors are the indexes of the request's selectors that do not select it.
	Selectors []int
}

// RequestCheck is the check of each device of a node for a request.
type RequestCheck struct {
	// Claim is the index of the claim, and Request the name of the request.
	Claim   int
	Request string
	Exactly resourceapi.ExactDeviceRequest
	Devices []DeviceCheck
	// NotExamined is the number of further devices, which the limit of the search left out.
	NotExamined int
}

// Meeting returns the number of devices that meet the request, each for itself.
func (a RequestCheck) Meeting() int {
	n := 0
	for _, d := range a.Devices {
		if len(d.Missing) == 0 {
			n++
		}
	}
	return n
}
