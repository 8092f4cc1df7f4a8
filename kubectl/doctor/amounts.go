// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// roundedAmount is an amount of which a claim holds more than it requests.
type roundedAmount struct {
	capacity        resourceapi.QualifiedName
	requested, held resource.Quantity
}

// wholeMebibyte is the step of memory. A request is rounded up to it without a loss.
const wholeMebibyte = 1 << 20

// roundedUp returns the amounts of a result that the scheduler has rounded up. They are in the
// order of the capacities. It leaves out memory that is rounded to whole Mi only.
func roundedUp(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) []roundedAmount {
	var all []roundedAmount
	for capacity, want := range requestedAmounts(claim, result.Request) {
		have, found := result.ConsumedCapacity[capacity]
		if !found || have.Cmp(want) <= 0 || capacity == v1alpha1.CapacityMemory && have.Value()-want.Value() < wholeMebibyte {
			continue
		}
		all = append(all, roundedAmount{capacity, want, have})
	}
	slices.SortFunc(all, func(a, b roundedAmount) int { return cmp.Compare(a.capacity, b.capacity) })
	return all
}

// requestedAmounts returns the amounts of a request, which for an alternative is "request/alternative".
func requestedAmounts(claim *resourceapi.ResourceClaim, request string) map[resourceapi.QualifiedName]resource.Quantity {
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
