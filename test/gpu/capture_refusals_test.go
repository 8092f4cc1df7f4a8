// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// readCalls are the calls of [nvmlsim.RefusableCalls]. They change nothing.
func (r rawGPU) readCalls() map[string]func() gonvml.Return {
	d := r.device
	return map[string]func() gonvml.Return{
		"DeviceGetAddressingMode":             code(d.GetAddressingMode),
		"DeviceGetBAR1MemoryInfo":             code(d.GetBAR1MemoryInfo),
		"DeviceGetClockInfo":                  code(func() (uint32, gonvml.Return) { return d.GetClockInfo(gonvml.CLOCK_SM) }),
		"DeviceGetComputeMode":                code(d.GetComputeMode),
		"DeviceGetComputeRunningProcesses":    code(d.GetComputeRunningProcesses),
		"DeviceGetCurrentClocksEventReasons":  code(d.GetCurrentClocksEventReasons),
		"DeviceGetEccMode":                    codeOfTwo(d.GetEccMode),
		"DeviceGetFieldValues":                r.readFields,
		"DeviceGetGpuFabricInfo":              code(d.GetGpuFabricInfo),
		"DeviceGetGpuFabricInfo_v4":           code(d.GetGpuFabricInfo_v4),
		"DeviceGetGraphicsRunningProcesses":   code(d.GetGraphicsRunningProcesses),
		"DeviceGetMPSComputeRunningProcesses": code(d.GetMPSComputeRunningProcesses),
		"DeviceGetMaxClockInfo":               code(func() (uint32, gonvml.Return) { return d.GetMaxClockInfo(gonvml.CLOCK_SM) }),
		"DeviceGetMemoryInfo":                 code(d.GetMemoryInfo),
		"DeviceGetMemoryInfo_v2":              code(d.GetMemoryInfo_v2),
		"DeviceGetMemoryLimits_v1":            r.readNoMemoryLimits,
		"DeviceGetMigMode":                    codeOfTwo(d.GetMigMode),
		"DeviceGetNumGpuCores":                code(d.GetNumGpuCores),
		"DeviceGetNumaNodeId":                 code(d.GetNumaNodeId),
		"DeviceGetPciInfoExt":                 code(d.GetPciInfoExt),
		"DeviceGetPersistenceMode":            code(d.GetPersistenceMode),
		"DeviceGetSupportedEventTypes":        code(d.GetSupportedEventTypes),
		"DeviceGetVirtualizationMode":         code(d.GetVirtualizationMode),
	}
}

// code returns a call that returns only the code of a method.
func code[T any](method func() (T, gonvml.Return)) func() gonvml.Return {
	return func() gonvml.Return {
		_, ret := method()
		return ret
	}
}

// codeOfTwo is code for a method with two results.
func codeOfTwo[T, U any](method func() (T, U, gonvml.Return)) func() gonvml.Return {
	return func() gonvml.Return {
		_, _, ret := method()
		return ret
	}
}

// readFields returns the code of the call as a whole. Each field has its own code too.
func (r rawGPU) readFields() gonvml.Return {
	return r.device.GetFieldValues([]gonvml.FieldValue{{FieldId: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION}})
}

// readNoMemoryLimits returns the code for a cgroup without limits. It returns SUCCESS if
// that is the usual code, or if another fact is the reason for the refusal.
func (r rawGPU) readNoMemoryLimits() gonvml.Return {
	folder, err := cgroup.Root()
	if err != nil || r.gpu.MIG.Enabled {
		return gonvml.SUCCESS
	}
	_, ret := r.device.GetMemoryLimits_v1(folder)
	if ret == gonvml.ERROR_NOT_SUPPORTED || ret == gonvml.ERROR_FUNCTION_NOT_FOUND {
		return gonvml.SUCCESS
	}
	return ret
}

// refusals returns the codes of the calls that the GPU refuses. A code that is about the
// state of the GPU is an error.
func (r rawGPU) refusals() (map[string]string, error) {
	refused := map[string]string{}
	calls := r.readCalls()
	for _, name := range nvmlsim.RefusableCalls() {
		ret := gonvml.ERROR_FUNCTION_NOT_FOUND
		switch {
		case r.has("nvml" + name):
			ret = calls[name]()
		case name == "DeviceGetMemoryLimits_v1":
			continue // the model has no memoryLimits
		}
		switch ret {
		case gonvml.SUCCESS:
		case gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_TIMEOUT, gonvml.ERROR_NOT_READY, gonvml.ERROR_RESET_REQUIRED:
			return nil, fmt.Errorf("capture %s: call nvml%s: %w", r.gpu.Address, name, ret)
		default:
			refused[name] = nvmlsim.ReturnName(ret)
		}
	}
	return refused, nil
}

// recovery returns the action that the driver asks for; empty for none.
func recovery(g gpu.GPU) nvmlsim.RecoveryAction {
	if g.Recovery == gpu.RecoveryNone {
		return ""
	}
	return nvmlsim.RecoveryAction(g.Recovery)
}

// memoryLimits returns the driver's backend for memory limits. The driver uses the
// kernel's controller dmem on kernels that have it.
func (r rawGPU) memoryLimits(root string) string {
	if !r.has("nvmlDeviceGetMemoryLimits_v1") {
		return ""
	}
	if _, ret := r.device.GetMemoryLimits_v1("/sys/fs/cgroup"); ret == gonvml.ERROR_FUNCTION_NOT_FOUND {
		return ""
	}
	if params, err := os.ReadFile(filepath.Join(root, "proc", "driver", "nvidia", "params")); err == nil && strings.Contains(string(params), "RmMemacctMode=0") {
		return nvmlsim.MemoryLimitsOff
	}
	if _, err := os.Stat(filepath.Join(root, "sys", "fs", "cgroup", "dmem.capacity")); err == nil {
		return nvmlsim.MemoryLimitsDmem
	}
	return nvmlsim.MemoryLimitsMisc
}

// refusing returns a machine with a recovery action and refused calls.
func refusing(t *testing.T) *nvmlsim.Model {
	t.Helper()
	model := load(t, "dgx-h100-r615")
	model.GPUs[2].Recovery = nvmlsim.RecoveryNodeReboot
	kind := model.Kinds[model.GPUs[0].Kind]
	kind.Persistence = nil
	kind.Refusals = map[string]string{
		"DeviceGetPersistenceMode":  "ERROR_NO_PERMISSION",
		"DeviceGetMaxClockInfo":     "ERROR_NOT_SUPPORTED",
		"DeviceGetGpuFabricInfo_v4": "ERROR_FUNCTION_NOT_FOUND",
		"DeviceGetMemoryLimits_v1":  "ERROR_NOT_FOUND",
	}
	model.Kinds[model.GPUs[0].Kind] = kind
	return model
}

func TestCaptureHasRecoveryActionsAndRefusals(t *testing.T) {
	want := refusing(t)
	m := simulate(t, want)
	got, err := m.capture(want.Name, m.node)
	must(t, err)
	for i, g := range got.GPUs {
		if g.Recovery != want.GPUs[i].Recovery {
			t.Errorf("GPU %d: recovery action %q, want %q", i, g.Recovery, want.GPUs[i].Recovery)
		}
	}
	refusals := map[string]string{}
	for name, code := range want.Kinds[want.GPUs[0].Kind].Refusals {
		refusals[name] = code
	}
	// A GPU without memory of its own in a NUMA node refuses the call in any case.
	refusals["DeviceGetNumaNodeId"] = "ERROR_NOT_SUPPORTED"
	if _, err := cgroup.Root(); err != nil {
		delete(refusals, "DeviceGetMemoryLimits_v1")
	}
	require.Same(t, "refusals", refusals, got.Kinds[got.GPUs[0].Kind].Refusals)
}

// A recording has the backend of memory limits, as far as the machine shows it.
func TestCaptureHasTheMemoryLimits(t *testing.T) {
	for _, backend := range []string{"", nvmlsim.MemoryLimitsDmem, nvmlsim.MemoryLimitsMisc, nvmlsim.MemoryLimitsOff} {
		t.Run("backend "+backend, func(t *testing.T) {
			model := load(t, "rtx-pro-6000")
			model.MemoryLimits = backend
			m := simulate(t, model)
			got, err := m.capture(model.Name, m.node)
			must(t, err)
			if got.MemoryLimits != backend {
				t.Errorf("captured %q", got.MemoryLimits)
			}
		})
	}
}

// A GPU that does not answer must not become a model whose calls fail for ever.
func TestCaptureFailsForAGPUThatDoesNotAnswer(t *testing.T) {
	model := load(t, "t4")
	model.Kinds["t4"] = refuse(model.Kinds["t4"], "DeviceGetClockInfo", "ERROR_TIMEOUT")
	m := simulate(t, model)
	if _, err := m.capture(model.Name, m.node); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetClockInfo") {
		t.Errorf("capture: %v; want an error that names the call", err)
	}
}

func refuse(kind nvmlsim.Kind, name, code string) nvmlsim.Kind {
	kind.Refusals = map[string]string{name: code}
	return kind
}

// The simulator plays the refusal of each call that a recording can have.
func TestEachRefusalIsPlayed(t *testing.T) {
	names := nvmlsim.RefusableCalls()
	if !slices.IsSorted(names) {
		t.Errorf("unsorted: %v", names)
	}
	model := load(t, "rtx-pro-6000")
	kind := model.Kinds[model.GPUs[0].Kind]
	kind.Refusals = map[string]string{}
	for _, name := range names {
		kind.Refusals[name] = "ERROR_IRQ_ISSUE"
	}
	model.Kinds[model.GPUs[0].Kind] = kind
	m := simulate(t, model)
	device, ret := m.lib.DeviceGetHandleByIndex(0)
	if ret != gonvml.SUCCESS {
		t.Fatal(ret)
	}
	calls := rawGPU{lib: m.lib, device: device}.readCalls()
	for _, name := range names {
		call := calls[name]
		if call == nil {
			t.Errorf("no recording reads %s", name)
			continue
		}
		if _, err := cgroup.Root(); err != nil && name == "DeviceGetMemoryLimits_v1" {
			continue // it takes a cgroup
		}
		if ret := call(); ret != gonvml.ERROR_IRQ_ISSUE {
			t.Errorf("%s: %v", name, ret)
		}
	}
	if len(calls) != len(names) {
		t.Errorf("%d calls, and %d are refusable", len(calls), len(names))
	}
}
