// SPDX-License-Identifier: Apache-2.0

// Package amounts compares the amounts of a claim's requests with the amounts that it holds. It
// is pure.
package amounts

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Rounded is an amount of which a claim holds more than it requests.
type Rounded struct {
	Capacity        resourceapi.QualifiedName
	Requested, Held resource.Quantity
}

// wholeMebibyte is the step of memory. A request is rounded up to it without a loss.
const wholeMebibyte = 1 << 20

// RoundedUp returns the amounts of a result that the scheduler has rounded up. They are in the
// order of the capacities. It leaves out memory that is rounded to whole Mi only.
func RoundedUp(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) []Rounded {
	var all []Rounded
	for capacity, want := range requested(claim, result.Request) {
		have, found := result.ConsumedCapacity[capacity]
		if !found || have.Cmp(want) <= 0 || capacity == v1alpha1.CapacityMemory && have.Value()-want.Value() < wholeMebibyte {
			continue
		}
		all = append(all, Rounded{capacity, want, have})
	}
	slices.SortFunc(all, func(a, b Rounded) int { return cmp.Compare(a.Capacity, b.Capacity) })
	return all
}

// requested returns the amounts of a request, which for an alternative is "request/alternative".
func requested(claim *resourceapi.ResourceClaim, request string) map[resourceapi.QualifiedName]resource.Quantity {
	name, alternative, _ := strings.Cut(request, "/")
	for _, r := range claim.Spec.Devices.Requests {
		if r.Name != name {
			continue
		}
		if r.Exactly != nil && r.Exactly.Capacity != nil {
			return r.Exactly.Capacity.Requests
		}
		for _, s := range r.FirstAvailable {
			if s.Name == alternative && s.Capacity != nil {
				return s.Capacity.Requests
			}
		}
	}
	return nil
}
