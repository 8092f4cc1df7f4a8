// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

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
