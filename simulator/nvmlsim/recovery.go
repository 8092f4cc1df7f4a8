// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// xidRecoveryAction is the XID of a recovery action that changed.
const xidRecoveryAction = 154

// recoveryActions are the actions in the order of NVML's numbers.
var recoveryActions = []RecoveryAction{
	RecoveryNone,
	RecoveryGPUReset,
	RecoveryNodeReboot,
	RecoveryDrainP2P,
	RecoveryDrainAndReset,
	RecoveryIMEXDomain,
	RecoveryBusReset,
	RecoverySystemReboot,
}

// RecoveryActions lists the names that [Sim.SetRecovery] accepts.
func RecoveryActions() []string {
	var names []string
	for _, action := range recoveryActions {
		names = append(names, string(action))
	}
	return names
}

// SetRecovery sets the recovery action that the driver asks for. If the action
// changes, it also sends an XID 154 and a recovery event. It is
// [simerr.ErrNotSupported] on GPUs older than Ampere, whose driver reports no action.
func (s *Sim) SetRecovery(index int, action RecoveryAction) error {
	if !slices.Contains(recoveryActions, action) {
		return fmt.Errorf("recovery action %q: %w: want one of %s", action, simerr.ErrInvalid, strings.Join(RecoveryActions(), ", "))
	}
	return s.changeGPU(index, func(st *State, _ *GPUState) error {
		if !s.node.gpus[index].reportsRecovery() {
			return fmt.Errorf("recovery action of GPU %d: %w before Ampere", index, simerr.ErrNotSupported)
		}
		st.askRecovery(index, action)
		return nil
	})
}

// askRecovery changes the action of a GPU and reports the change.
func (st *State) askRecovery(index int, action RecoveryAction) {
	if action == RecoveryNone {
		action = ""
	}
	g := &st.GPUs[index]
	if g.Recovery == action {
		return
	}
	g.Recovery = action
	st.record(index, nvml.EventTypeXidCriticalError, xidRecoveryAction)
	st.record(index, nvml.EventTypeGpuRecoveryAction, 0)
}

// reportsRecovery reports whether NVML has a recovery action for the GPU.
func (s *spec) reportsRecovery() bool {
	return architectures[s.kind.Architecture] >= nvml.DEVICE_ARCH_AMPERE
}

func (g *GPU) validateRecovery(field string, kind Kind, p *problems) {
	switch {
	case g.Recovery == "":
	case g.Recovery == RecoveryNone || !slices.Contains(recoveryActions, g.Recovery):
		p.add(field, "%q is not an action; want one of %s", g.Recovery, strings.Join(RecoveryActions()[1:], ", "))
	case architectures[kind.Architecture] < nvml.DEVICE_ARCH_AMPERE:
		p.add(field, "the driver reports no recovery action before Ampere")
	}
}

// outlivesReset reports whether an action asks for more than a reset of the GPU.
func outlivesReset(action RecoveryAction) bool {
	switch action {
	case RecoveryNodeReboot, RecoveryIMEXDomain, RecoveryBusReset, RecoverySystemReboot:
		return true
	case RecoveryNone, RecoveryGPUReset, RecoveryDrainP2P, RecoveryDrainAndReset:
	}
	return false
}

// GetFieldValues returns the recovery action. Each field has its own return code.
// Other fields are not supported.
func (d device) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	c, ret := d.enterGPU("DeviceGetFieldValues")
	if ret != nvml.SUCCESS {
		return ret
	}
	if len(values) == 0 {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	for i := range values {
		v := &values[i]
		v.Timestamp, v.NvmlReturn = time.Now().UnixMicro(), uint32(nvml.ERROR_NOT_SUPPORTED)
		if v.FieldId != nvml.FI_DEV_GET_GPU_RECOVERY_ACTION || !c.spec.reportsRecovery() {
			continue
		}
		v.NvmlReturn, v.ValueType, v.Value = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_INT), [8]byte{}
		// Without an action the index is -1.
		number := max(0, slices.Index(recoveryActions, c.gpu.Recovery))
		binary.NativeEndian.PutUint32(v.Value[:], uint32(number))
	}
	return nvml.SUCCESS
}
