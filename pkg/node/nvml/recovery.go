// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// recoveryActions are NVML's, by number.
var recoveryActions = map[nvml.DeviceGpuRecoveryAction]gpu.RecoveryAction{
	nvml.GPU_RECOVERY_ACTION_NONE:                gpu.RecoveryNone,
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:           gpu.RecoveryGPUReset,
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:         gpu.RecoveryNodeReboot,
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:           gpu.RecoveryDrainP2P,
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:     gpu.RecoveryDrainAndReset,
	nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: gpu.RecoveryIMEXDomain,
	nvml.GPU_RECOVERY_ACTION_BUS_RESET:           gpu.RecoveryBusReset,
	nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:       gpu.RecoverySystemReboot,
}

// readRecovery reads the action that the driver requests before the GPU can be used
// again. The action stays empty if the driver does not know the field.
func readRecovery(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	const operation = "read its recovery action"
	if !has(lib, "nvmlDeviceGetFieldValues") {
		return nil
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if present, err := optional(operation, device.GetFieldValues(fields)); err != nil || !present {
		return err
	}
	present, err := optional(operation, nvml.Return(fields[0].NvmlReturn))
	if err != nil || !present {
		return err
	}
	number, ok := unsignedValue(fields[0])
	if !ok {
		return nil
	}
	g.Recovery = recoveryAction(number)
	return nil
}

// recoveryAction returns the action with NVML's number. For an unknown number it
// returns the strongest action, so that the GPU stays out of service.
func recoveryAction(number uint64) gpu.RecoveryAction {
	if number <= uint64(nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT) {
		return recoveryActions[nvml.DeviceGpuRecoveryAction(number)]
	}
	return gpu.RecoverySystemReboot
}

// unsignedValue decodes the union in a field's value. It returns false for a
// fraction, a negative number and an unknown type.
func unsignedValue(f nvml.FieldValue) (uint64, bool) {
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(f.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(f.Value[:]), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n := int64(binary.NativeEndian.Uint64(f.Value[:]))
		return uint64(n), n >= 0
	case nvml.VALUE_TYPE_SIGNED_INT:
		n := int32(binary.NativeEndian.Uint32(f.Value[:]))
		return uint64(n), n >= 0
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(f.Value[:])), true
	default:
		return 0, false
	}
}
