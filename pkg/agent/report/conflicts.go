// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Conflict is another program of the node that allocates a device that claims hold.
type Conflict int

// The conflicts of a held device.
const (
	// ConflictDevicePlugin means that a device plugin has given the device to a pod.
	ConflictDevicePlugin Conflict = iota
	// ConflictOtherDriver means that another driver of the same name serves the node.
	ConflictOtherDriver
)

// condition returns the condition of a device of the node with the conflict. Tenants read it, so it
// names no pod.
func (c Conflict) condition(node string) condition {
	if c == ConflictOtherDriver {
		return condition{
			kind: v1alpha1.ConditionOtherDriver, reason: v1alpha1.ReasonSameName,
			message: "another driver of the same name serves the node, and gets the calls for this claim; an administrator removes one of the two drivers from the node",
		}
	}
	return condition{
		kind: v1alpha1.ConditionExternallyAllocated, reason: v1alpha1.ReasonDevicePlugin,
		message: inUseMessage(v1alpha1.InUseTaintDevicePlugin, node),
	}
}

// withConflicts adds a condition to the devices of the claim for each of their conflicts.
func (s *claimStatus) withConflicts(devices []claim.Device, conflicts map[kind.Name][]Conflict) *claimStatus {
	for i := range s.devices {
		d := &s.devices[i]
		if at := slices.IndexFunc(devices, func(device claim.Device) bool { return device.Name.String() == d.device }); at >= 0 {
			for _, c := range conflicts[devices[at].Name] {
				d.more = append(d.more, c.condition(d.pool))
			}
		}
	}
	return s
}
