// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

func TestDevicesOfAnotherDriverInTheNodesSlices(t *testing.T) {
	slice := func(names ...string) (s resourceapi.ResourceSlice) {
		s.Name = "slice-" + names[0]
		for _, name := range names {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name})
		}
		return s
	}
	own := slice("gpu-1a-00", "gpu-1a-00-mig-1g-10gb-0", "gpu-1a-00-ts", "node-gpus")
	if count, _ := foreignDevices([]resourceapi.ResourceSlice{own}); count != 0 {
		t.Errorf("%d of the driver's own devices are foreign", count)
	}
	if count, example := foreignDevices([]resourceapi.ResourceSlice{own, slice("gpu-0", "gpu-1"), own}); count != 2 || example.Name != "slice-gpu-0" {
		t.Errorf("%d foreign devices in %s, want 2", count, example.Name)
	}
}
