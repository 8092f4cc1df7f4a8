// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// Condition is a condition that a device, or a node, must meet for a claim.
type Condition string

// The conditions, in the order in which they are explained: the last is the only one
// that waiting can change.
const (
	// ConditionClass is the selectors of the DeviceClass.
	ConditionClass Condition = "class"
	// ConditionSelectors is the selectors of the request.
	ConditionSelectors Condition = "selector"
	// ConditionSize requires that the device has the requested capacity in total.
	ConditionSize Condition = "size"
	// ConditionTaints requires that the request tolerates the taints of the device.
	ConditionTaints Condition = "taint"
	// ConditionConstraints is the constraints of the claim on several devices.
	ConditionConstraints Condition = "constraint"
	// ConditionPool requires that the scheduler can use the pool of the device.
	ConditionPool Condition = "pool"
	// ConditionHolders requires that enough of the device is free of other claims.
	ConditionHolders Condition = "in use"
)

// conditions are the conditions that can be dropped.
var conditions = []Condition{ConditionClass, ConditionSelectors, ConditionSize, ConditionTaints, ConditionConstraints, ConditionHolders}

// without returns the attempt without some of its conditions.
func (q attempt) without(dropped ...Condition) attempt {
	drops := func(c Condition) bool { return slices.Contains(dropped, c) }
	if drops(ConditionHolders) {
		q.state = NewState()
	}
	if drops(ConditionClass) {
		open := make(Classes, len(q.classes))
		for i, class := range q.classes {
			open[i] = &resourceapi.DeviceClass{ObjectMeta: class.ObjectMeta}
		}
		q.classes = open
	}
	q = q.changed(func(r *resourceapi.ExactDeviceRequest) {
		if drops(ConditionSelectors) {
			r.Selectors = slices.DeleteFunc(r.Selectors, func(s resourceapi.DeviceSelector) bool { return s.CEL == nil || s.CEL.Expression != marked })
		}
		if drops(ConditionSize) {
			r.Capacity = nil
		}
		if drops(ConditionTaints) {
			r.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
		}
	})
	if drops(ConditionConstraints) {
		for _, claim := range q.claims {
			claim.Spec.Devices.Constraints = nil
		}
	}
	return q
}

// single returns the attempt with one device for each request.
func (q attempt) single() attempt {
	return q.changed(func(r *resourceapi.ExactDeviceRequest) {
		r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeExactCount, 1
	})
}

// changed returns the attempt with copies of its claims. change changes each of their requests, and
// each alternative of a request.
func (q attempt) changed(change func(*resourceapi.ExactDeviceRequest)) attempt {
	claims := make([]*resourceapi.ResourceClaim, len(q.claims))
	for i, claim := range q.claims {
		claims[i] = claim.DeepCopy()
		for _, r := range claims[i].Spec.Devices.Requests {
			if r.Exactly != nil {
				change(r.Exactly)
			}
			for k := range r.FirstAvailable {
				s, exactly := &r.FirstAvailable[k], exactlyOf(r.FirstAvailable[k])
				change(&exactly)
				s.Selectors, s.AllocationMode, s.Count, s.Tolerations, s.Capacity = exactly.Selectors, exactly.AllocationMode, exactly.Count, exactly.Tolerations, exactly.Capacity
			}
		}
	}
	q.claims = claims
	return q
}

// exactlyOf returns an alternative as a request of its own.
func exactlyOf(s resourceapi.DeviceSubRequest) resourceapi.ExactDeviceRequest {
	return resourceapi.ExactDeviceRequest{
		DeviceClassName: s.DeviceClassName, Selectors: s.Selectors, AllocationMode: s.AllocationMode,
		Count: s.Count, Tolerations: s.Tolerations, Capacity: s.Capacity,
	}
}

// markAttribute and marked let a request select one device: a CEL expression cannot read
// its name.
const (
	markAttribute = "fleet.gpu.nvidia.com/marked"
	marked        = "device.attributes['fleet.gpu.nvidia.com'].?marked.orValue(false)"
)

// forDevice returns the attempt to allocate one device to a request of one of the claims.
func (q attempt) forDevice(id DeviceID, r request) attempt {
	all := slices.Clone(q.slices)
	for i, slice := range all {
		j := slices.IndexFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == id.Device })
		if j < 0 || slice.Spec.Driver != id.Driver || slice.Spec.Pool.Name != id.Pool {
			continue
		}
		copied := *slice
		copied.Spec.Devices = slices.Clone(slice.Spec.Devices)
		device := slice.Spec.Devices[j].DeepCopy()
		if device.Attributes == nil {
			device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		}
		device.Attributes[markAttribute] = resourceapi.DeviceAttribute{BoolValue: ptr.To(true)}
		copied.Spec.Devices[j] = *device
		all[i] = &copied
	}
	q.slices = all
	exactly := r.Exactly.DeepCopy()
	exactly.AllocationMode, exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: marked}})
	q.claims = []*resourceapi.ResourceClaim{{
		ObjectMeta: q.claims[r.claim].ObjectMeta,
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: exactly}}}},
	}}
	return q
}

// Request is a request of a claim, or one of its alternatives.
type Request struct {
	// Name as results have it: "gpu", or "gpu/small" for an alternative.
	Name    string
	Exactly resourceapi.ExactDeviceRequest
}

// Requests returns the requests of a claim, with alternatives as requests of their own.
func Requests(claim resourceapi.DeviceClaim) []Request {
	var all []Request
	for _, r := range claim.Requests {
		if r.Exactly != nil {
			all = append(all, Request{r.Name, *r.Exactly})
		}
		for _, s := range r.FirstAvailable {
			all = append(all, Request{resourceclaim.CreateSubRequestRef(r.Name, s.Name), exactlyOf(s)})
		}
	}
	return all
}

// request is a request of one of several claims.
type request struct {
	// claim is the index of the claim.
	claim int
	Request
}

// requests returns the requests of all claims.
func (q attempt) requests() []request {
	var all []request
	for i, claim := range q.claims {
		for _, r := range Requests(claim.Spec.Devices) {
			all = append(all, request{i, r})
		}
	}
	return all
}
