// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import "github.com/NVIDIA/go-nvml/pkg/nvml"

func enableState(on bool) nvml.EnableState {
	if on {
		return nvml.FEATURE_ENABLED
	}
	return nvml.FEATURE_DISABLED
}

// set changes a setting of a GPU. The change runs on a state that no other
// process changes meanwhile.
func (d device) set(method string, change func(call) nvml.Return) nvml.Return {
	if _, ret := d.enterGPU(method); ret != nvml.SUCCESS {
		return ret
	}
	return d.library.change(func(st *State) nvml.Return {
		c, ret := d.resolve(st)
		if ret != nvml.SUCCESS {
			return ret
		}
		return change(c)
	})
}

func (d device) GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetEccMode")
	if ret != nvml.SUCCESS {
		return 0, 0, ret
	}
	if c.gpu.ECC == nil {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return enableState(*c.gpu.ECC), enableState(*c.gpu.ECCPending), nvml.SUCCESS
}

// SetEccMode takes hold with the next reset or reboot.
func (d device) SetEccMode(mode nvml.EnableState) nvml.Return {
	return d.set("DeviceSetEccMode", func(c call) nvml.Return {
		if c.gpu.ECC == nil {
			return nvml.ERROR_NOT_SUPPORTED
		}
		on := mode == nvml.FEATURE_ENABLED
		c.gpu.ECCPending = &on
		return nvml.SUCCESS
	})
}

func (d device) GetTotalEccErrors(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetTotalEccErrors")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if c.gpu.ECC == nil || !*c.gpu.ECC {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	if kind == nvml.MEMORY_ERROR_TYPE_UNCORRECTED {
		return c.gpu.ECCErrors, nvml.SUCCESS
	}
	return 0, nvml.SUCCESS
}

func (d device) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetPersistenceMode")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if c.gpu.Persistence == nil {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return enableState(*c.gpu.Persistence), nvml.SUCCESS
}

func (d device) SetPersistenceMode(mode nvml.EnableState) nvml.Return {
	return d.set("DeviceSetPersistenceMode", func(c call) nvml.Return {
		if c.gpu.Persistence == nil {
			return nvml.ERROR_NOT_SUPPORTED
		}
		on := mode == nvml.FEATURE_ENABLED
		c.gpu.Persistence = &on
		return nvml.SUCCESS
	})
}

func (d device) GetAddressingMode() (nvml.DeviceAddressingMode, nvml.Return) {
	c, ret := d.enterGPU("DeviceGetAddressingMode")
	if ret != nvml.SUCCESS {
		return nvml.DeviceAddressingMode{}, ret
	}
	mode, ok := addressingModes[c.spec.kind.AddressingMode]
	if !ok {
		return nvml.DeviceAddressingMode{}, nvml.ERROR_NOT_SUPPORTED
	}
	info := nvml.DeviceAddressingMode{Value: uint32(mode)}
	info.Version = nvml.STRUCT_VERSION(info, 1)
	return info, nvml.SUCCESS
}

func (d device) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	c, ret := d.enter("DeviceGetComputeMode")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return computeModes[c.gpu.ComputeMode], nvml.SUCCESS
}

// SetComputeMode is refused on a GPU in MIG mode, as NVML refuses it.
func (d device) SetComputeMode(mode nvml.ComputeMode) nvml.Return {
	return d.set("DeviceSetComputeMode", func(c call) nvml.Return {
		if c.gpu.MIGMode {
			return nvml.ERROR_NOT_SUPPORTED
		}
		for name, value := range computeModes {
			if value == mode {
				c.gpu.ComputeMode = name
				return nvml.SUCCESS
			}
		}
		return nvml.ERROR_INVALID_ARGUMENT
	})
}

func (d device) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	_, ret := d.enterGPU("DeviceGetVirtualizationMode")
	return nvml.GPU_VIRTUALIZATION_MODE_NONE, ret
}
