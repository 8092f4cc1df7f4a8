// SPDX-License-Identifier: Apache-2.0

package use

import (
	"errors"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// RecoveryPrefix begins the taint value of a recovery action.
const RecoveryPrefix = "recovery-"

// Fabric returns the value of the taint [v1alpha1.TaintUnhealthy] for the state of a GPU's
// NVSwitch fabric. It is empty if the fabric does not keep claims from the GPU.
func Fabric(state gpu.FabricState) string {
	switch state {
	case "", gpu.FabricCompleted:
		return ""
	case gpu.FabricFailed:
		return "fabric-failed"
	case gpu.FabricNotStarted, gpu.FabricInProgress:
		fallthrough
	default:
		return "fabric-not-ready"
	}
}

// Silence returns the value of the taint [v1alpha1.TaintUnhealthy] of a GPU that
// fails with the error.
func Silence(err error) string {
	switch {
	case errors.Is(err, gpu.ErrTimeout):
		return "timeout"
	case errors.Is(err, gpu.ErrNotReady):
		return "driver-not-ready"
	case errors.Is(err, gpu.ErrPermission):
		return "permission-denied"
	default:
		return "lost"
	}
}

// Recovery returns the value of the taint [v1alpha1.TaintUnhealthy] of a GPU whose driver
// requests the action.
func Recovery(action gpu.RecoveryAction) string { return RecoveryPrefix + string(action) }
