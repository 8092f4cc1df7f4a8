// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// device is the handle of a GPU or, with a UUID, of a MIG device on it. Two handles
// of the same device are equal.
type device struct {
	*mock.Device
	library *library
	index   int
	mig     string
}

var _ nvml.Device = device{}

// device returns the handle of a GPU or, with a UUID, of a MIG device on it.
func (l *library) device(index int, mig string) device {
	return device{Device: &l.notSimulated.device, library: l, index: index, mig: mig}
}

// call holds the state for one call of a device. It must not be modified.
type call struct {
	node *node
	spec *spec
	gpu  *GPUState
	// instance and compute are set for a MIG device.
	instance *Instance
	compute  *ComputeInstance
}

// enter begins a call that GPUs and MIG devices support. A refusal of the model is of the GPU
// only.
func (d device) enter(method string) (call, nvml.Return) {
	st, ret := d.library.begin(method, d.index)
	if ret != nvml.SUCCESS {
		return call{}, ret
	}
	c, ret := d.resolve(st)
	if ret != nvml.SUCCESS || d.mig != "" {
		return c, ret
	}
	if refused := c.spec.refusals[method]; refused != nvml.SUCCESS {
		return call{}, refused
	}
	return c, nvml.SUCCESS
}

func (d device) resolve(st *State) (call, nvml.Return) {
	c := call{node: d.library.sim.node, spec: d.library.sim.node.gpus[d.index], gpu: &st.GPUs[d.index]}
	if c.gpu.Lost {
		return call{}, nvml.ERROR_GPU_IS_LOST
	}
	if d.mig != "" {
		// The handle of a destroyed MIG device is invalid.
		if c.instance, c.compute = findMIGDevice(c.gpu, d.mig); c.instance == nil {
			return call{}, nvml.ERROR_INVALID_ARGUMENT
		}
	}
	return c, nvml.SUCCESS
}

// enterGPU begins a call that only GPUs support.
func (d device) enterGPU(method string) (call, nvml.Return) {
	c, ret := d.enter(method)
	if ret == nvml.SUCCESS && d.mig != "" {
		return call{}, nvml.ERROR_NOT_SUPPORTED
	}
	return c, ret
}

// enterMIG begins a call that only MIG devices support.
func (d device) enterMIG(method string) (call, nvml.Return) {
	c, ret := d.enter(method)
	if ret == nvml.SUCCESS && d.mig == "" {
		return call{}, nvml.ERROR_NOT_SUPPORTED
	}
	return c, ret
}

func (d device) GetName() (string, nvml.Return) {
	c, ret := d.enter("DeviceGetName")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	if d.mig != "" {
		return c.spec.kind.Name + " MIG " + c.spec.migName(c.instance, c.compute), nvml.SUCCESS
	}
	return c.spec.kind.Name, nvml.SUCCESS
}

func (d device) GetUUID() (string, nvml.Return) {
	c, ret := d.enter("DeviceGetUUID")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	if d.mig != "" {
		return d.mig, nvml.SUCCESS
	}
	return c.spec.uuid, nvml.SUCCESS
}

func (d device) GetIndex() (int, nvml.Return) {
	c, ret := d.enter("DeviceGetIndex")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if d.mig != "" {
		for i, uuid := range migUUIDs(c.gpu) {
			if uuid == d.mig {
				return i, nvml.SUCCESS
			}
		}
	}
	return c.spec.index, nvml.SUCCESS
}

func (d device) GetMinorNumber() (int, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetMinorNumber")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return c.spec.minor, nvml.SUCCESS
}

func (d device) GetSerial() (string, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetSerial")
	if ret != nvml.SUCCESS {
		return "", ret
	}
	if c.spec.gpu.Serial == "" {
		return "", nvml.ERROR_NOT_SUPPORTED
	}
	return c.spec.gpu.Serial, nvml.SUCCESS
}

func (d device) GetBrand() (nvml.BrandType, nvml.Return) {
	c, ret := d.enter("DeviceGetBrand")
	if ret != nvml.SUCCESS {
		return nvml.BRAND_UNKNOWN, ret
	}
	return brands[c.spec.kind.Brand], nvml.SUCCESS
}

func (d device) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	c, ret := d.enter("DeviceGetArchitecture")
	if ret != nvml.SUCCESS {
		return nvml.DEVICE_ARCH_UNKNOWN, ret
	}
	return architectures[c.spec.kind.Architecture], nvml.SUCCESS
}

func (d device) GetCudaComputeCapability() (int, int, nvml.Return) {
	c, ret := d.enter("DeviceGetCudaComputeCapability")
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	return c.spec.capability.Major, c.spec.capability.Minor, nvml.SUCCESS
}

func (d device) GetNumGpuCores() (int, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetNumGpuCores")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return c.spec.kind.Cores, nvml.SUCCESS
}

// memory returns the total, reserved and used bytes of the device.
func (d device) memory(c call) (total, reserved, used uint64) {
	if d.mig != "" {
		for _, ci := range c.instance.Compute {
			used += usedBytes(processesOn(c.gpu, ci.UUID))
		}
		return c.spec.profiles[c.instance.Profile].MemoryMiB << 20, 0, used
	}
	if len(c.gpu.MemoryLimits) > 0 {
		// The driver reports the limit of the caller's cgroup as the size of the GPU.
		ids, err := c.node.cgroupsOf(os.Getpid())
		if limit := c.node.reportedLimit(c.gpu, ids); err == nil && limit != nil {
			return limit.HardBytes, 0, c.node.usedUnder(c.gpu, *limit)
		}
	}
	return c.spec.kind.MemoryMiB << 20, c.spec.kind.ReservedMiB << 20, usedBytes(c.gpu.Processes)
}

// GetMemoryInfo counts reserved memory as used, as NVML's version 1 does.
func (d device) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	c, ret := d.enter("DeviceGetMemoryInfo")
	if ret != nvml.SUCCESS {
		return nvml.Memory{}, ret
	}
	total, reserved, used := d.memory(c)
	return nvml.Memory{Total: total, Used: reserved + used, Free: total - reserved - used}, nvml.SUCCESS
}

func (d device) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := d.enter("DeviceGetMemoryInfo_v2")
	if ret != nvml.SUCCESS {
		return nvml.Memory_v2{}, ret
	}
	total, reserved, used := d.memory(c)
	info := nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}
	info.Version = nvml.STRUCT_VERSION(info, 2)
	return info, nvml.SUCCESS
}

func (d device) GetBAR1MemoryInfo() (nvml.BAR1Memory, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetBAR1MemoryInfo")
	if ret != nvml.SUCCESS {
		return nvml.BAR1Memory{}, ret
	}
	if c.spec.kind.BAR1MiB == 0 {
		return nvml.BAR1Memory{}, nvml.ERROR_NOT_SUPPORTED
	}
	size := c.spec.kind.BAR1MiB << 20
	return nvml.BAR1Memory{Bar1Total: size, Bar1Free: size}, nvml.SUCCESS
}

// GetAttributes supports MIG devices only, as in NVML.
func (d device) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	c, ret := d.enterMIG("DeviceGetAttributes")
	if ret != nvml.SUCCESS {
		return nvml.DeviceAttributes{}, ret
	}
	p := c.spec.profiles[c.instance.Profile]
	cp := c.spec.computeProfile(p, c.compute.Profile)
	return nvml.DeviceAttributes{
		MultiprocessorCount:       uint32(cp.multiprocessors),
		SharedCopyEngineCount:     uint32(p.CopyEngines),
		SharedDecoderCount:        uint32(p.Decoders),
		SharedEncoderCount:        uint32(p.Encoders),
		SharedJpegCount:           uint32(p.JPEGs),
		SharedOfaCount:            uint32(p.OFAs),
		GpuInstanceSliceCount:     uint32(p.slices),
		ComputeInstanceSliceCount: uint32(cp.slices),
		MemorySizeMB:              p.MemoryMiB,
	}, nvml.SUCCESS
}

// longAddress returns NVML's bus ID: eight digits of domain, in capitals.
func longAddress(a pciAddress) string {
	return fmt.Sprintf("%08X:%02X:%02X.%X", a.Domain, a.Bus, a.Device, a.Function)
}

func shortAddress(a pciAddress) string {
	return fmt.Sprintf("%04X:%02X:%02X.%X", a.Domain&0xffff, a.Bus, a.Device, a.Function)
}

func putString(buffer []int8, s string) {
	for i := range min(len(s), len(buffer)-1) {
		buffer[i] = int8(s[i])
	}
}

func pciInfo(a pciAddress, deviceID, subsystem uint32) nvml.PciInfo {
	info := nvml.PciInfo{Domain: a.Domain, Bus: uint32(a.Bus), Device: uint32(a.Device), PciDeviceId: deviceID, PciSubSystemId: subsystem}
	putString(info.BusId[:], longAddress(a))
	putString(info.BusIdLegacy[:], shortAddress(a))
	return info
}

func (d device) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetPciInfo")
	if ret != nvml.SUCCESS {
		return nvml.PciInfo{}, ret
	}
	return pciInfo(c.spec.address, c.spec.pciDevice, c.spec.pciSubsystem), nvml.SUCCESS
}

func (d device) GetPciInfoExt() (nvml.PciInfoExt, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetPciInfoExt")
	if ret != nvml.SUCCESS {
		return nvml.PciInfoExt{}, ret
	}
	a := c.spec.address
	// A 3D controller: base class 03, sub-class 02.
	info := nvml.PciInfoExt{
		Domain: a.Domain, Bus: uint32(a.Bus), Device: uint32(a.Device),
		PciDeviceId: c.spec.pciDevice, PciSubSystemId: c.spec.pciSubsystem, BaseClass: 0x03, SubClass: 0x02,
	}
	info.Version = nvml.STRUCT_VERSION(info, 1)
	putString(info.BusId[:], longAddress(a))
	return info, nvml.SUCCESS
}

// GetNumaNodeId returns the NUMA node of the GPU's own memory, on platforms that have
// one. It is not the node with the nearest CPUs.
func (d device) GetNumaNodeId() (int, nvml.Return) { //nolint:revive // the name is go-nvml's
	c, ret := d.enterGPU("DeviceGetNumaNodeId")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if c.spec.gpu.MemoryNUMANode == nil {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return *c.spec.gpu.MemoryNUMANode, nvml.SUCCESS
}
