// SPDX-License-Identifier: Apache-2.0

package kind

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Monitor is all GPUs of a node, for agents that watch them.
const Monitor Kind = v1alpha1.DeviceTypeMonitor

const monitorName = "node-gpus"

type monitor struct{}

func (monitor) kind() Kind                         { return Monitor }
func (monitor) format(Name) string                 { return monitorName }
func (monitor) parse(s string) (Name, bool, error) { return Name{Kind: Monitor}, s == monitorName, nil }
func (monitor) scope() Scope                       { return ScopeNode }
func (monitor) takes() Taken                       { return TakesNothing }
func (monitor) adminOnly() bool                    { return true }
func (monitor) offer() string                      { return v1alpha1.OfferMonitor }

func (monitor) configuration() Configuration {
	return Configuration{Noun: "the monitoring of GPUs", Remedy: "remove it, or name in its requests the devices that it is for"}
}

func (monitor) attributes(f Inputs, a Attributes) {
	a.driver(f)
}

// capacities returns no memory: claims take none, because the scheduler would charge it
// for admin access as for any other.
func (monitor) capacities(Amounts) Capacities {
	return Capacities{v1alpha1.CapacityMemory: resourceapi.DeviceCapacity{Value: number(0)}}
}
