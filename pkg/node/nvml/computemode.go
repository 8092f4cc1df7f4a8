// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ComputeMode returns the compute mode of the GPU at the address. It returns
// [gpu.ErrNotSupported] if the GPU does not report one.
func (l *Library) ComputeMode(ctx context.Context, address gpu.PCIAddress) (gpu.ComputeMode, error) {
	return onGPU(ctx, l, address, "read the compute mode of", func(device nvml.Device) (gpu.ComputeMode, error) {
		mode, ret := device.GetComputeMode()
		if err := check("read its compute mode", ret); err != nil {
			return "", err
		}
		known, ok := computeModes[mode]
		if !ok {
			return "", fmt.Errorf("%w: NVML reports the unknown compute mode %d", gpu.ErrNotSupported, mode)
		}
		return known, nil
	})
}

// SetComputeMode sets the compute mode of the GPU at the address, and is idempotent.
// Contexts that exist stay. The mode lasts until the driver is unloaded, or until the
// last client of a GPU without persistence mode ends. SetComputeMode returns
// [gpu.ErrNotSupported] if the GPU is in MIG mode, and [gpu.ErrPermission] if the
// process is not root.
func (l *Library) SetComputeMode(ctx context.Context, address gpu.PCIAddress, mode gpu.ComputeMode) error {
	number, err := computeModeNumber(mode)
	if err != nil {
		return err
	}
	_, err = onGPU(ctx, l, address, "set the compute mode of", func(device nvml.Device) (struct{}, error) {
		return struct{}{}, check(fmt.Sprintf("set %s", mode), device.SetComputeMode(number))
	})
	return err
}

// computeModeNumber returns NVML's number of a compute mode.
func computeModeNumber(mode gpu.ComputeMode) (nvml.ComputeMode, error) {
	for _, number := range []nvml.ComputeMode{nvml.COMPUTEMODE_DEFAULT, nvml.COMPUTEMODE_PROHIBITED, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS} {
		if computeModes[number] == mode {
			return number, nil
		}
	}
	return 0, fmt.Errorf("compute mode %q: %w: want %s, %s or %s", mode, gpu.ErrInvalid, gpu.ComputeModeDefault, gpu.ComputeModeProhibited, gpu.ComputeModeExclusiveProcess)
}
