// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The meaning of each code is documented in nvml.h.
func TestReturnCodesMeanSentinels(t *testing.T) {
	for ret, want := range map[nvml.Return]error{
		nvml.SUCCESS:                         nil,
		nvml.ERROR_UNINITIALIZED:             gpu.ErrNotReady,
		nvml.ERROR_DRIVER_NOT_LOADED:         gpu.ErrNotReady,
		nvml.ERROR_LIBRARY_NOT_FOUND:         gpu.ErrNotReady,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH:   gpu.ErrNotReady,
		nvml.ERROR_NOT_READY:                 gpu.ErrNotReady,
		nvml.ERROR_GPU_IS_LOST:               gpu.ErrLost,
		nvml.ERROR_RESET_REQUIRED:            gpu.ErrLost,
		nvml.ERROR_IRQ_ISSUE:                 gpu.ErrLost,
		nvml.ERROR_INSUFFICIENT_POWER:        gpu.ErrLost,
		nvml.ERROR_NOT_SUPPORTED:             gpu.ErrNotSupported,
		nvml.ERROR_FUNCTION_NOT_FOUND:        gpu.ErrNotSupported,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH: gpu.ErrNotSupported,
		nvml.ERROR_DEPRECATED:                gpu.ErrNotSupported,
		nvml.ERROR_NO_DATA:                   gpu.ErrNotSupported,
		nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:    gpu.ErrNotSupported,
		nvml.ERROR_FREQ_NOT_SUPPORTED:        gpu.ErrNotSupported,
		nvml.ERROR_RESET_TYPE_NOT_SUPPORTED:  gpu.ErrNotSupported,
		nvml.ERROR_NO_PERMISSION:             gpu.ErrPermission,
		nvml.ERROR_OPERATING_SYSTEM:          gpu.ErrPermission,
		nvml.ERROR_NOT_FOUND:                 gpu.ErrNotFound,
		nvml.ERROR_GPU_NOT_FOUND:             gpu.ErrNotFound,
		nvml.ERROR_INSUFFICIENT_RESOURCES:    gpu.ErrNoCapacity,
		nvml.ERROR_MEMORY:                    gpu.ErrNoCapacity,
		nvml.ERROR_IN_USE:                    gpu.ErrInUse,
		nvml.ERROR_TIMEOUT:                   gpu.ErrTimeout,
		nvml.ERROR_INVALID_ARGUMENT:          gpu.ErrInvalid,
		nvml.ERROR_INVALID_STATE:             gpu.ErrInvalid,
		nvml.ERROR_INSUFFICIENT_SIZE:         gpu.ErrInvalid,
		nvml.ERROR_ALREADY_INITIALIZED:       gpu.ErrInvalid,
		nvml.ERROR_CORRUPTED_INFOROM:         gpu.ErrCorrupt,
	} {
		t.Run(ret.Error(), func(t *testing.T) {
			err := check("read", ret)
			require.Error(t, "check", err, want)
			if (err == nil) != (ret == nvml.SUCCESS) {
				t.Errorf("error %v for %v", err, ret)
			}
		})
	}
}

func TestAnUnknownCodeIsAnErrorOfItsOwn(t *testing.T) {
	if err := check("read its UUID", nvml.ERROR_UNKNOWN); err == nil || errors.Is(err, gpu.ErrLost) {
		t.Errorf("an operation fails with %v, want an error without a sentinel", err)
	}
	if err := required("read its UUID", nvml.ERROR_UNKNOWN); err == nil || errors.Is(err, gpu.ErrLost) {
		t.Errorf("a missing identity returns %v, which must not be ErrLost", err)
	}
	if present, err := optional("read its brand", nvml.ERROR_UNKNOWN); present || err != nil {
		t.Errorf("an optional fact: present=%v with error %v, want it absent", present, err)
	}
}

func TestALostGPUIsAnError(t *testing.T) {
	if present, err := optional("read its brand", nvml.ERROR_GPU_IS_LOST); present || !errors.Is(err, gpu.ErrLost) {
		t.Errorf("present=%v with error %v, want %v", present, err, gpu.ErrLost)
	}
}
