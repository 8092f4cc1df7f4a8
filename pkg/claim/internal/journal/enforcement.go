// SPDX-License-Identifier: Apache-2.0

package journal

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// Enforcement returns how strictly the memory and the compute of the device are limited
// for the claim.
func (d Device) Enforcement() (memory, compute v1alpha1.Enforcement) {
	memory, compute = v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if d.MPS != nil {
		memory, compute = v1alpha1.EnforcementCooperative, v1alpha1.EnforcementCooperative
	}
	if d.MPS != nil && d.MPS.Namespace != "" {
		compute = v1alpha1.EnforcementDaemon
	}
	if d.Limit != nil {
		memory = v1alpha1.EnforcementDriver
	}
	return memory, compute
}
