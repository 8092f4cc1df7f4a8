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

// readRecovery reads what the driver asks for to bring the GPU back into
// service. Drivers that are older than the field leave it empty.
func readRecovery(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	const operation = "read its recovery action"
	if !has(lib, "nvmlDeviceGetFieldValues") {
		return nil
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if told, err := optional(operation, device.GetFieldValues(fields)); err != nil || !told {
		return err
	}
	told, err := optional(operation, nvml.Return(fields[0].NvmlReturn))
	if err != nil || !told {
		return err
	}
	number, ok := unsignedValue(fields[0])
	if !ok {
		return nil
	}
	g.Recovery = recoveryAction(number)
	return nil
}

// recoveryAction returns the action with NVML's number. A number that this
// release does not know is an action all the same: the GPU stays out of service,
// with the strongest remedy that there is.
func recoveryAction(number uint64) gpu.RecoveryAction {
	if number <= uint64(nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT) {
		return recoveryActions[nvml.DeviceGpuRecoveryAction(number)]
	}
	return gpu.RecoverySystemReboot
}

// unsignedValue decodes the union in a field's value. It returns false for a type
// that holds no count: a fraction, a negative number, or one this release does
// not know.
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
