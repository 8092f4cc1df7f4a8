// SPDX-License-Identifier: Apache-2.0

package use

import (
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Enforcement returns how strictly the memory and the compute of a share of a device are
// limited. The hardware and the driver limit no part of a
// MIG device for a container: both need a GPU that is not in MIG mode.
func (g GPU) Enforcement(device kind.Name, sharing Sharing) (memory, compute v1alpha1.Enforcement) {
	memory, compute = v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if sharing == ByMPS {
		memory, compute = v1alpha1.EnforcementCooperative, v1alpha1.EnforcementCooperative
		if g.HasNamespaces(device) {
			compute = v1alpha1.EnforcementDaemon
		}
	}
	if HasMemoryLimits(g.GPU, device) {
		memory = v1alpha1.EnforcementDriver
	}
	return memory, compute
}

// HasMemoryLimits reports whether the driver can limit a container's memory of a
// device of the GPU.
func HasMemoryLimits(g gpu.GPU, device kind.Name) bool {
	return g.MemoryLimits && !device.IsPartition()
}

// HasNamespaces reports whether MPS daemons for a device of the GPU have namespaces.
func (g GPU) HasNamespaces(device kind.Name) bool { return g.MPSNamespaces && !device.IsPartition() }
