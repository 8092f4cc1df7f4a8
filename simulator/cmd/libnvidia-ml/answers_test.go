// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// answers collects the results of all calls of a library that change nothing.
type answers struct {
	lib   nvml.Interface
	lines []string
}

// add records the results of a call. Handles are different in each library, so an answer
// has the UUID of the device instead.
func (a *answers) add(call string, results ...any) {
	for i, r := range results {
		switch r := r.(type) {
		case nvml.Device:
			uuid, _ := r.GetUUID()
			results[i] = "device " + uuid
		case []nvml.GpuInstance:
			results[i] = len(r)
		case []nvml.ComputeInstance:
			results[i] = len(r)
		case nvml.Return:
			results[i] = nvmlsim.ReturnName(r)
		}
		// An answer to a failed call has no values: libraries do not store any.
		if i == len(results)-1 && results[i] != "SUCCESS" {
			results = results[i:]
		}
	}
	a.lines = append(a.lines, fmt.Sprintf("%s: %+v", call, results))
}

// call records a call of a method by its name, with all its arguments.
func (a *answers) call(name string, on any, method string, arguments ...any) {
	m := reflect.ValueOf(on).MethodByName(method)
	var in []reflect.Value
	for i, argument := range arguments {
		in = append(in, reflect.ValueOf(argument).Convert(m.Type().In(i)))
		if reflect.TypeOf(argument).Kind() == reflect.Pointer {
			arguments[i] = "profile" // not its address
		}
	}
	var results []any
	for _, out := range m.Call(in) {
		results = append(results, out.Interface())
	}
	a.add(fmt.Sprintf("%s.%s%v", name, method, arguments), results...)
}

// node records the answers of the node and of its GPUs.
func (a *answers) node() {
	for _, method := range []string{"SystemGetDriverVersion", "SystemGetNVMLVersion", "SystemGetCudaDriverVersion", "SystemGetCudaDriverVersion_v2", "DeviceGetCount", "GetExcludedDeviceCount"} {
		a.call("node", a.lib, method)
	}
	a.call("node", a.lib, "SystemGetProcessName", 4711)
	a.call("node", a.lib, "SystemGetProcessName", 1)
	for _, unknown := range []string{"", "GPU-0", "MIG-0"} {
		a.call("node", a.lib, "DeviceGetHandleByUUID", unknown)
		a.call("node", a.lib, "DeviceGetHandleBySerial", unknown)
		a.call("node", a.lib, "DeviceGetHandleByPciBusId", unknown)
	}
	count, _ := a.lib.DeviceGetCount()
	a.call("node", a.lib, "DeviceGetHandleByIndex", count)
	for index := range count {
		a.call("node", a.lib, "DeviceGetHandleByIndex", index)
		device, _ := a.lib.DeviceGetHandleByIndex(index)
		uuid, _ := device.GetUUID()
		pci, _ := device.GetPciInfo()
		serial, _ := device.GetSerial()
		a.call("node", a.lib, "DeviceGetHandleByUUID", uuid)
		a.call("node", a.lib, "DeviceGetHandleBySerial", serial)
		a.call("node", a.lib, "DeviceGetHandleByPciBusId", fmt.Sprintf("%08x:%02x:00.0", pci.Domain, pci.Bus))
		a.device(fmt.Sprintf("GPU %d", index), device)
		a.mig(fmt.Sprintf("GPU %d", index), device)
	}
}

// device records the answers of a GPU or a MIG device.
func (a *answers) device(name string, d nvml.Device) {
	for _, method := range []string{
		"GetName", "GetUUID", "GetSerial", "GetIndex", "GetMinorNumber", "GetBrand", "GetArchitecture", "GetCudaComputeCapability",
		"GetNumGpuCores", "GetMemoryInfo", "GetMemoryInfo_v2", "GetBAR1MemoryInfo", "GetAttributes", "GetPciInfo", "GetPciInfoExt",
		"GetNumaNodeId", "GetCurrentClocksEventReasons", "GetEccMode", "GetPersistenceMode", "GetComputeMode", "GetAddressingMode",
		"GetVirtualizationMode", "GetGpuFabricInfo", "GetGpuFabricInfo_v4", "GetSupportedEventTypes", "GetComputeRunningProcesses",
		"GetMPSComputeRunningProcesses", "GetGraphicsRunningProcesses", "GetMigMode", "IsMigDeviceHandle", "GetMaxMigDeviceCount",
		"GetDeviceHandleFromMigDeviceHandle", "GetGpuInstanceId", "GetComputeInstanceId",
	} {
		a.call(name, d, method)
	}
	a.call(name, d, "GetMemoryLimits_v1", "/sys/fs/cgroup")
	for _, kind := range []nvml.ClockType{nvml.CLOCK_GRAPHICS, nvml.CLOCK_SM, nvml.CLOCK_MEM, nvml.CLOCK_VIDEO, nvml.CLOCK_COUNT} {
		a.call(name, d, "GetClockInfo", kind)
		a.call(name, d, "GetMaxClockInfo", kind)
	}
	for _, kind := range []nvml.MemoryErrorType{nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.MEMORY_ERROR_TYPE_UNCORRECTED} {
		a.call(name, d, "GetTotalEccErrors", kind, nvml.AGGREGATE_ECC)
	}
	for link := -1; link < 20; link++ {
		a.call(name, d, "GetNvLinkState", link)
		a.call(name, d, "GetNvLinkVersion", link)
		a.call(name, d, "GetNvLinkRemoteDeviceType", link)
		a.call(name, d, "GetNvLinkRemotePciInfo", link)
		a.call(name, d, "GetNvLinkCapability", link, nvml.NVLINK_CAP_P2P_SUPPORTED)
		a.call(name, d, "GetNvLinkCapability", link, nvml.NVLINK_CAP_COUNT)
	}
	count, _ := a.lib.DeviceGetCount()
	for index := range count {
		other, _ := a.lib.DeviceGetHandleByIndex(index)
		level, ret := d.GetTopologyCommonAncestor(other)
		a.add(fmt.Sprintf("%s to GPU %d", name, index), level, ret)
		status, ret := d.GetP2PStatus(other, nvml.P2P_CAPS_INDEX_NVLINK)
		a.add(fmt.Sprintf("%s to GPU %d", name, index), status, ret)
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}, {FieldId: nvml.FI_DEV_ECC_CURRENT}}
	ret := d.GetFieldValues(values)
	for i := range values {
		values[i].Timestamp = 0
	}
	a.add(name+" fields", values, ret)
}

// mig records the answers of a GPU about MIG, and the answers of its instances.
func (a *answers) mig(name string, d nvml.Device) {
	for profile := -1; profile <= nvml.GPU_INSTANCE_PROFILE_COUNT; profile++ {
		a.call(name, d, "GetGpuInstanceProfileInfo", profile)
		info, ret := d.GetGpuInstanceProfileInfo(profile)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, method := range []string{"GetGpuInstancePossiblePlacements", "GetGpuInstanceRemainingCapacity", "GetGpuInstances"} {
			a.call(name, d, method, &info)
		}
		instances, ret := d.GetGpuInstances(&info)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, in := range instances {
			a.instance(fmt.Sprintf("%s instance of profile %d", name, profile), in)
		}
	}
	a.call(name, d, "GetGpuInstanceById", 99)
	for index := range 8 {
		a.call(name, d, "GetMigDeviceHandleByIndex", index)
		if mig, ret := d.GetMigDeviceHandleByIndex(index); ret == nvml.SUCCESS {
			a.device(fmt.Sprintf("%s MIG device %d", name, index), mig)
		}
	}
}

// instance records the answers of a GPU instance.
func (a *answers) instance(name string, in nvml.GpuInstance) {
	info, ret := in.GetInfo()
	a.add(name, info.Device, info.Id, info.ProfileId, info.Placement, ret)
	for profile := -1; profile <= nvml.COMPUTE_INSTANCE_PROFILE_COUNT; profile++ {
		for engines := range 2 {
			a.call(name, in, "GetComputeInstanceProfileInfo", profile, engines)
		}
		info, ret := in.GetComputeInstanceProfileInfo(profile, 0)
		if ret != nvml.SUCCESS {
			continue
		}
		for _, method := range []string{"GetComputeInstancePossiblePlacements", "GetComputeInstanceRemainingCapacity", "GetComputeInstances"} {
			a.call(name, in, method, &info)
		}
		computes, ret := in.GetComputeInstances(&info)
		if ret != nvml.SUCCESS {
			continue
		}
		for i, ci := range computes {
			info, ret := ci.GetInfo()
			a.add(fmt.Sprintf("%s compute instance %d", name, i), info.Device, info.Id, info.ProfileId, info.Placement, ret)
		}
	}
	a.call(name, in, "GetComputeInstanceById", 99)
}

// Go-nvml calls the library with the structs of nvml.h. The answers must be the same as
// without the library.
func TestTheLibraryAnswersAsTheSimulator(t *testing.T) {
	loaded := nvml.New(nvml.WithLibraryPath(build(t)))
	for _, model := range nvmlsim.ModelNames() {
		t.Run(model, func(t *testing.T) {
			sim := node(t, model)
			linked := start(t, sim.NVML())
			start(t, loaded)
			cut(t, linked)
			want, got := answers{lib: linked}, answers{lib: loaded}
			want.node()
			got.node()
			if diff := cmp.Diff(want.lines, got.lines); diff != "" {
				t.Errorf("the library answers otherwise (-simulator +library):\n%s", diff)
			}
		})
	}
}

// cut creates two MIG devices on the last GPU if its model can without a reset, and a
// process on each GPU.
func cut(t *testing.T, lib nvml.Interface) {
	t.Helper()
	count, _ := lib.DeviceGetCount()
	d, _ := lib.DeviceGetHandleByIndex(count - 1)
	if activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS || activation != nvml.SUCCESS {
		return
	}
	for range 2 {
		profile, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		in, ret := d.CreateGpuInstance(&profile)
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		compute, ret := in.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 0)
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
		if _, ret := in.CreateComputeInstance(&compute); ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
}
