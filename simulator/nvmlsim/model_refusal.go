// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// memoryLimitsCall is the call that reads the limits of a cgroup.
const memoryLimitsCall = "DeviceGetMemoryLimits_v1"

// RefusableCalls lists the calls that [Kind.Refusals] may name. Each reads a fact of a GPU
// that no setting changes, so a refusal holds for as long as the node exists.
func RefusableCalls() []string {
	return []string{
		"DeviceGetAddressingMode",
		"DeviceGetBAR1MemoryInfo",
		"DeviceGetClockInfo",
		"DeviceGetComputeMode",
		"DeviceGetComputeRunningProcesses",
		"DeviceGetCurrentClocksEventReasons",
		"DeviceGetEccMode",
		"DeviceGetFieldValues",
		"DeviceGetGpuFabricInfo",
		"DeviceGetGpuFabricInfo_v4",
		"DeviceGetGraphicsRunningProcesses",
		"DeviceGetMPSComputeRunningProcesses",
		"DeviceGetMaxClockInfo",
		"DeviceGetMemoryInfo",
		"DeviceGetMemoryInfo_v2",
		memoryLimitsCall,
		"DeviceGetMigMode",
		"DeviceGetNumGpuCores",
		"DeviceGetNumaNodeId",
		"DeviceGetPciInfoExt",
		"DeviceGetPersistenceMode",
		"DeviceGetSupportedEventTypes",
		"DeviceGetVirtualizationMode",
	}
}

func (k *Kind) validateRefusals(field string, p *problems) {
	calls := RefusableCalls()
	for _, name := range slices.Sorted(maps.Keys(k.Refusals)) {
		if !slices.Contains(calls, name) {
			p.add(field+"."+name, "the simulator plays no refusal of this call; it does of %v", calls)
		}
		if code, err := ParseReturn(k.Refusals[name]); err != nil || code == nvml.SUCCESS {
			p.add(field+"."+name, "%q is not an error code of NVML such as ERROR_NOT_SUPPORTED", k.Refusals[name])
		}
	}
}

// refusals returns the refused calls of a kind. It omits the call that reads memory limits,
// because its code applies only to a cgroup without limits.
func (k *Kind) refusals() map[string]nvml.Return {
	refused := map[string]nvml.Return{}
	for name, code := range k.Refusals {
		if name != memoryLimitsCall {
			refused[name], _ = ParseReturn(code)
		}
	}
	return refused
}

// withoutMemoryLimits returns the answer to the call that reads the limits of a cgroup
// without limits.
func (k *Kind) withoutMemoryLimits() nvml.Return {
	if code, err := ParseReturn(k.Refusals[memoryLimitsCall]); err == nil {
		return code
	}
	// It was measured with either backend.
	return nvml.ERROR_NOT_SUPPORTED
}
