// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// nodeDevices returns the devices that represent all GPUs of the node. It returns them if
// the node has GPUs and the devices are offered or held.
//
// They have no taint, because monitoring agents watch unhealthy GPUs too, and
// neither counters nor a capacity that claims take. The scheduler charges these for
// admin access as for any other, and would not place a monitoring agent on a node
// whose GPUs are all in use. They do not allow multiple allocations: with admin access, a device
// is allocated to any number of claims.
func (c Catalog) nodeDevices(node gpu.Node, held Held) []resourceapi.Device {
	var devices []resourceapi.Device
	for _, k := range kind.All() {
		name := kind.Name{Kind: k}
		_, taken := held[name]
		if k.Scope() == kind.ScopeNode && (c.inputs.Offer.Has(k) || taken) && len(node.GPUs) > 0 {
			devices = append(devices, resourceapi.Device{Name: name.String(), Attributes: c.inputs.Selection.Published(k.Attributes(kind.Inputs{Node: node})), Capacity: k.Capacities(kind.Amounts{})})
		}
	}
	return devices
}
