// SPDX-License-Identifier: Apache-2.0

package use

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Fabric returns a taint's value and message for the state of a GPU's NVSwitch
// fabric. The taint is [v1alpha1.TaintUnhealthy]. Both are empty if the fabric does
// not keep claims from the GPU. The remedy is [FabricRemedy].
func Fabric(state gpu.FabricState) (value, message string) {
	switch state {
	case "", gpu.FabricCompleted:
		return "", ""
	case gpu.FabricFailed:
		return "fabric-failed", "the GPU could not join its NVSwitch fabric"
	case gpu.FabricNotStarted, gpu.FabricInProgress:
		fallthrough
	default:
		return "fabric-not-ready", fmt.Sprintf("the GPU has not joined its NVSwitch fabric (%s)", state)
	}
}

// FabricRemedy states the consequence of a fabric that is not ready, and what to do.
const FabricRemedy = "CUDA would fail with error 802; the node's administrator must start nvidia-fabricmanager or, on multi-node NVLink, nvidia-imex"

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

// RecoveryMessage describes the recovery action that the driver asks for.
func RecoveryMessage(action gpu.RecoveryAction) string {
	return fmt.Sprintf("the driver asks for recovery: %s", cmp.Or(recoveries[action], string(action)))
}

// recoveries describe NVML's recovery actions. Source:
// https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
var recoveries = map[gpu.RecoveryAction]string{
	gpu.RecoveryGPUReset:      "end the processes on the GPU and reset it",
	gpu.RecoveryNodeReboot:    "restart the node",
	gpu.RecoveryDrainP2P:      "end the processes that use peer-to-peer transfers",
	gpu.RecoveryDrainAndReset: "end the processes on the GPU and its peers, and reset it",
	gpu.RecoveryIMEXDomain:    "recover the IMEX domain",
	gpu.RecoveryBusReset:      "reset the PCIe bus of the GPU",
	gpu.RecoverySystemReboot:  "restart the whole system",
}

// FaultRemedy returns what to do about a fault. recovery is set if the message is a
// [RecoveryMessage], which names the action.
func FaultRemedy(recovery bool) string {
	if recovery {
		return "the node's administrator must do so"
	}
	return "the node's administrator must reset the GPU or restart the node"
}
