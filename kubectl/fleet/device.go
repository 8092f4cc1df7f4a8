// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// Taints returns the published taints of the device that keep pods away.
func (d Device) Taints() []resourceapi.DeviceTaint {
	if d.Published == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Published.Taints), func(t resourceapi.DeviceTaint) bool { return t.Effect == resourceapi.DeviceTaintEffectNone })
}

// Device returns a device with its holders. Published is nil if the newest slices of its pool
// do not have it. The pool must be the one of a node, which has the node's name.
func (f *Fleet) Device(id DeviceID) Device {
	for _, slice := range newestPools(f.published[id.Pool])[pool{id.Driver, id.Pool}].slices {
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == id.Device {
				return f.device(id, &slice.Spec.Devices[i])
			}
		}
	}
	return f.device(id, nil)
}
