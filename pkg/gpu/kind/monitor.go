// SPDX-License-Identifier: Apache-2.0

package kind

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Monitor is all GPUs of a node, for agents that watch them.
const Monitor Kind = v1alpha1.DeviceTypeMonitor

func monitor() rules {
	const name = "node-gpus"
	return rules{
		kind: Monitor, scope: ScopeNode, takes: TakesNothing, offer: v1alpha1.OfferMonitor,
		configuration: Configuration{Noun: "the monitoring of GPUs", Remedy: "remove it, or name in its requests the devices that it is for"},
		class:         Class{Comment: "All GPUs of a node, for agents that monitor them, on nodes that offer it\n(monitor). Only with adminAccess: true in the request, which the API server\nadmits in namespaces with the label resource.kubernetes.io/admin-access: \"true\"."},
		format:        func(Name) string { return name },
		parse:         func(s string) (Name, bool, error) { return Name{Kind: Monitor}, s == name, nil },
		attributes:    func(f Inputs, a Attributes) { a.driver(f) },
		// Claims take no memory, because the scheduler would charge it for admin access as
		// for any other.
		capacities: func(Amounts) Capacities {
			return Capacities{v1alpha1.CapacityMemory: resourceapi.DeviceCapacity{Value: number(0)}}
		},
	}
}
