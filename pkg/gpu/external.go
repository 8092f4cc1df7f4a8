// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"strconv"
)

// ExternalAllocation is a GPU or MIG device that a device plugin has allocated to a
// pod. The plugin is one of the node, and not this driver.
type ExternalAllocation struct {
	// Device is the UUID of the GPU or MIG device. It is "nvidiaN", with the minor
	// number N, if the plugin names GPUs by their nodes.
	Device string
	// Pod is the pod that has the device: "namespace/name", or its UID if the kubelet has
	// forgotten the name.
	Pod string
}

// IsOf reports whether the allocation is of the whole GPU.
func (a ExternalAllocation) IsOf(g GPU) bool {
	return a.Device == g.UUID || a.Device == "nvidia"+strconv.Itoa(g.Minor)
}

// CompareExternal orders allocations by device and pod.
func CompareExternal(a, b ExternalAllocation) int {
	return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pod, b.Pod))
}
