// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// recordedH100 returns a node whose GPUs refuse calls, and whose first GPU has a recovery
// action.
func recordedH100(t *testing.T) *Sim {
	t.Helper()
	m, err := LoadModel("dgx-h100")
	noError(t, err)
	m.GPUs[0].Recovery = RecoveryNodeReboot
	m.GPUs[0].MIGMode = true
	kind := m.Kinds[m.GPUs[0].Kind]
	kind.Refusals = map[string]string{
		"DeviceGetPersistenceMode": "ERROR_NO_PERMISSION", "DeviceGetMemoryInfo_v2": "ERROR_NOT_SUPPORTED", "DeviceGetNumGpuCores": "ERROR_FUNCTION_NOT_FOUND",
		"DeviceGetAddressingMode": "ERROR_NOT_SUPPORTED",
	}
	m.Kinds[m.GPUs[0].Kind] = kind
	s, err := Create(t.TempDir(), m)
	noError(t, err)
	if ret := s.NVML().Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	return s
}

func TestAModelRefusesCalls(t *testing.T) {
	s := recordedH100(t)
	d := gpuHandle(t, s.NVML(), 0)
	if _, ret := d.GetPersistenceMode(); ret != nvml.ERROR_NO_PERMISSION {
		t.Errorf("persistence mode: %v", ret)
	}
	if ret := d.SetPersistenceMode(nvml.FEATURE_ENABLED); ret != nvml.SUCCESS {
		t.Errorf("a call that is not refused: %v", ret)
	}
	if _, ret := d.GetNumGpuCores(); ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		t.Errorf("cores: %v", ret)
	}
	for symbol, want := range map[string]bool{
		"nvmlDeviceGetNumGpuCores": false, "nvmlDeviceGetPersistenceMode": true,
		// The release of the driver does not have it, and the machine has.
		"nvmlDeviceGetAddressingMode": true,
	} {
		if err := s.NVML().Extensions().LookupSymbol(symbol); (err == nil) != want {
			t.Errorf("%s: %v", symbol, err)
		}
	}
	noError(t, s.LoseGPU(0))
	if _, ret := d.GetPersistenceMode(); ret != nvml.ERROR_GPU_IS_LOST {
		t.Errorf("persistence mode of a lost GPU: %v", ret)
	}
}

func TestMIGDevicesDoNotRefuseTheCallsOfTheirGPU(t *testing.T) {
	s := recordedH100(t)
	d := gpuHandle(t, s.NVML(), 0)
	info := must[nvml.GpuInstanceProfileInfo](t, "profile")(d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE))
	instance := must[nvml.GpuInstance](t, "create a GPU instance")(d.CreateGpuInstance(&info))
	compute := must[nvml.ComputeInstanceProfileInfo](t, "profile")(instance.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0))
	must[nvml.ComputeInstance](t, "create a compute instance")(instance.CreateComputeInstance(&compute))
	mig := must[nvml.Device](t, "MIG device")(d.GetMigDeviceHandleByIndex(0))
	if _, ret := mig.GetMemoryInfo_v2(); ret != nvml.SUCCESS {
		t.Errorf("memory of the MIG device: %v", ret)
	}
	if _, ret := d.GetMemoryInfo_v2(); ret != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("memory of the GPU: %v", ret)
	}
}

func TestANodeBeginsWithTheRecoveryActionOfItsModel(t *testing.T) {
	s := recordedH100(t)
	action := func(gpu int) string {
		t.Helper()
		v, err := s.View()
		noError(t, err)
		return v.GPUs[gpu].Recovery
	}
	if action(0) != "node-reboot" || action(1) != "" {
		t.Errorf("at first: %q and %q", action(0), action(1))
	}
	if err := s.ResetGPU(0); err != nil || action(0) != "node-reboot" {
		t.Errorf("after a reset: %q, %v", action(0), err)
	}
	if err := s.Reboot(); err != nil || action(0) != "" {
		t.Errorf("after a reboot: %q, %v", action(0), err)
	}
}

func TestModelsWithBadRefusalsAndRecoveryActionsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Model, *Kind){
		"kinds.t4.refusals.DeviceGetUUID":    func(_ *Model, k *Kind) { k.Refusals = map[string]string{"DeviceGetUUID": "ERROR_UNKNOWN"} },
		"kinds.t4.refusals.DeviceGetMigMode": func(_ *Model, k *Kind) { k.Refusals = map[string]string{"DeviceGetMigMode": "SUCCESS"} },
		"kinds.t4.refusals.DeviceGetEccMode": func(_ *Model, k *Kind) { k.Refusals = map[string]string{"DeviceGetEccMode": "ERROR_OF_MINE"} },
		"gpus[1].recovery: invalid: the driver reports no recovery action": func(m *Model, _ *Kind) {
			m.GPUs[1].Recovery = RecoveryGPUReset
		},
		`gpus[2].recovery: invalid: "none"`: func(m *Model, _ *Kind) { m.GPUs[2].Recovery = RecoveryNone },
		`gpus[3].recovery: invalid: "tea"`:  func(m *Model, _ *Kind) { m.GPUs[3].Recovery = "tea" },
	} {
		m, err := LoadModel("t4")
		noError(t, err)
		kind := m.Kinds["t4"]
		change(m, &kind)
		m.Kinds["t4"] = kind
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAFunctionThatOneKindShowsIsOfTheDriver(t *testing.T) {
	m, err := LoadModel("mixed-a30-l40s")
	noError(t, err)
	codes := []string{"ERROR_FUNCTION_NOT_FOUND", "ERROR_NOT_SUPPORTED"}
	for i, name := range slices.Sorted(maps.Keys(m.Kinds)) {
		kind := m.Kinds[name]
		kind.Refusals = map[string]string{"DeviceGetPersistenceMode": codes[i]}
		m.Kinds[name] = kind
	}
	// The order of the kinds is another one each time.
	for range 20 {
		if m.missingFunctions()["DeviceGetPersistenceMode"] {
			t.Fatal("the function is missing although one kind has another code")
		}
	}
}
