// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// SetMemoryLimit limits the memory of the GPU for the processes of a cgroup and the
// cgroups below it. The driver refuses allocations above the limit. folder is the full
// path of the cgroup, bytes at most the memory of the GPU or [gpu.NoMemoryLimit]. The
// limit ends with the cgroup.
//
// The error wraps [gpu.ErrNotSupported] if the driver is older than release 615, the
// GPU is in MIG mode or the cgroup is not of version 2. It wraps [gpu.ErrNotFound] if there is no
// such cgroup or GPU, or the controller dmem is not enabled for the cgroup, and
// [gpu.ErrPermission] if the process is not root. Other errors are the same as from
// [Library.MIG].
//
// SetMemoryLimit reads no GPU, so it is fast in a process that makes no other call. It
// delays calls that concern the node while the driver does not answer.
func (l *Library) SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error {
	lib, err := l.withMemoryLimits(ctx, address)
	if err != nil {
		return err
	}
	operation := fmt.Sprintf("limit the memory of a cgroup on GPU at %s", address)
	_, err = doWithin(ctx, l.node, callLimit, operation, func() (struct{}, error) {
		device, ret := lib.DeviceGetHandleByPciBusId(address.String())
		if err := required(operation, ret); err != nil {
			return struct{}{}, err
		}
		// The cgroups above keep a soft limit after this one is removed.
		ret = device.SetMemoryLimits_v1(folder, 0, bytes)
		if ret == nvml.ERROR_NOT_FOUND {
			return struct{}{}, fmt.Errorf("%s: cgroup %s: %w: the kernel's controller dmem is not enabled for it; enable it in cgroup.subtree_control of every cgroup above", operation, folder, gpu.ErrNotFound)
		}
		if err := ofCgroup(folder, ret); err != nil {
			return struct{}{}, fmt.Errorf("%s: %w", operation, err)
		}
		return struct{}{}, nil
	})
	return err
}

// MemoryLimit returns the memory limit of a cgroup on the GPU at the address. It returns
// the errors of [Library.SetMemoryLimit]; any user can call it.
//
// A driver may return "not supported" for a cgroup that has no limit. So a result without a
// limit does not prove that the driver can set one.
func (l *Library) MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error) {
	if _, err := l.withMemoryLimits(ctx, address); err != nil {
		return gpu.MemoryLimit{}, err
	}
	return onGPUWithin(ctx, answerLimit, l, address, "read the memory limit of a cgroup on", func(device nvml.Device) (gpu.MemoryLimit, error) {
		found, ret := device.GetMemoryLimits_v1(folder)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_NOT_SUPPORTED {
			return gpu.MemoryLimit{Bytes: gpu.NoMemoryLimit}, nil
		}
		return gpu.MemoryLimit{Bytes: found.HardLimit, UsedBytes: found.CurrentUsed}, ofCgroup(folder, ret)
	})
}

// OwnCgroup sets the folder of this process' cgroup. The driver reports the limit of that
// cgroup as the size of a GPU; a Snapshot then returns an error for that GPU.
func OwnCgroup(folder string) Option { return func(l *Library) { l.ownCgroup = folder } }

// readMemoryLimits reads whether the driver has memory limits, and checks that none
// applies to this process.
func (l *Library) readMemoryLimits(lib nvml.Interface, device nvml.Device, g *gpu.GPU) error {
	g.MemoryLimits = has(lib, setMemoryLimits)
	if !g.MemoryLimits {
		g.NoMemoryLimits = "the driver is older than release 615 (CUDA 13.4)"
		return nil
	}
	if l.ownCgroup == "" {
		return nil
	}
	own, ret := device.GetMemoryLimits_v1(l.ownCgroup)
	if ret == nvml.SUCCESS && own.HardLimit != gpu.NoMemoryLimit {
		return fmt.Errorf("read its memory: %w: the cgroup of this process (%s) has a memory limit of %d MiB on it, which the driver reports as its size; remove the limit with nvidia-smi memory-limits",
			gpu.ErrNotSupported, l.ownCgroup, own.HardLimit>>20)
	}
	return nil
}

// setMemoryLimits is a function of drivers that have memory limits.
const setMemoryLimits = "nvmlDeviceSetMemoryLimits_v1"

// withMemoryLimits returns the started library. It returns an error that wraps
// [gpu.ErrNotSupported] if the driver has no memory limits. Without the check a call
// would end the process: the library is linked lazily.
func (l *Library) withMemoryLimits(ctx context.Context, address gpu.PCIAddress) (nvml.Interface, error) {
	lib, err := l.started(ctx)
	if err != nil {
		return nil, fmt.Errorf("limit memory on GPU at %s: %w", address, err)
	}
	if !has(lib, setMemoryLimits) {
		return nil, fmt.Errorf("limit memory on GPU at %s: %w: the driver is older than release 615", address, gpu.ErrNotSupported)
	}
	return lib, nil
}

// ofCgroup returns the error of a call that names a cgroup. The driver's message is
// "operating system" if it cannot open the folder.
func ofCgroup(folder string, ret nvml.Return) error {
	if ret == nvml.ERROR_OPERATING_SYSTEM {
		return fmt.Errorf("cgroup %s: %w as a cgroup of version 2", folder, gpu.ErrNotFound)
	}
	return check("cgroup "+folder, ret)
}
