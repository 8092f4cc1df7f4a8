// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// check returns nil for success, and otherwise an error. The error has the
// operation, the sentinel for the return code and NVML's text. There is no sentinel
// for a code without a meaning, such as NVML_ERROR_UNKNOWN.
func check(operation string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	if sentinel := sentinelOf(ret); sentinel != nil {
		return fmt.Errorf("%s: %w: NVML says %q", operation, sentinel, ret.Error())
	}
	return fmt.Errorf("%s: NVML says %q", operation, ret.Error())
}

func sentinelOf(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_UNINITIALIZED,
		nvml.ERROR_DRIVER_NOT_LOADED,
		nvml.ERROR_LIBRARY_NOT_FOUND,
		// The driver was replaced under a library that is still loaded.
		nvml.ERROR_LIB_RM_VERSION_MISMATCH,
		nvml.ERROR_NOT_READY:
		return gpu.ErrNotReady
	case nvml.ERROR_GPU_IS_LOST,
		nvml.ERROR_RESET_REQUIRED,
		nvml.ERROR_IRQ_ISSUE,
		nvml.ERROR_INSUFFICIENT_POWER:
		return gpu.ErrLost
	case nvml.ERROR_NOT_SUPPORTED,
		nvml.ERROR_FUNCTION_NOT_FOUND,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH,
		nvml.ERROR_DEPRECATED,
		nvml.ERROR_NO_DATA,
		nvml.ERROR_VGPU_ECC_NOT_SUPPORTED,
		nvml.ERROR_FREQ_NOT_SUPPORTED,
		nvml.ERROR_RESET_TYPE_NOT_SUPPORTED:
		return gpu.ErrNotSupported
	case nvml.ERROR_NO_PERMISSION,
		// For example, the device cgroup denies access to the GPU.
		nvml.ERROR_OPERATING_SYSTEM:
		return gpu.ErrPermission
	case nvml.ERROR_NOT_FOUND,
		nvml.ERROR_GPU_NOT_FOUND:
		return gpu.ErrNotFound
	case nvml.ERROR_INSUFFICIENT_RESOURCES,
		nvml.ERROR_MEMORY:
		return gpu.ErrNoCapacity
	case nvml.ERROR_IN_USE:
		return gpu.ErrInUse
	case nvml.ERROR_TIMEOUT:
		return gpu.ErrTimeout
	case nvml.ERROR_INVALID_ARGUMENT,
		nvml.ERROR_INVALID_STATE,
		nvml.ERROR_INSUFFICIENT_SIZE,
		nvml.ERROR_ALREADY_INITIALIZED:
		return gpu.ErrInvalid
	case nvml.ERROR_CORRUPTED_INFOROM:
		return gpu.ErrCorrupt
	default:
		return nil
	}
}

// required is check for a fact without which a GPU cannot be used. It does not map
// NVML_ERROR_UNKNOWN to [gpu.ErrLost]: the faults of a GPU that was lost end when it
// answers again, because that takes a reset.
func required(operation string, ret nvml.Return) error { return check(operation, ret) }

// optional reports whether a fact that a GPU may lack was read. It returns an error
// only if the code concerns the whole GPU, because a failure to read one fact must
// not take a working GPU out of service.
func optional(operation string, ret nvml.Return) (bool, error) {
	for _, doubt := range []error{gpu.ErrLost, gpu.ErrNotReady, gpu.ErrTimeout} {
		if errors.Is(sentinelOf(ret), doubt) {
			return false, check(operation, ret)
		}
	}
	return ret == nvml.SUCCESS, nil
}
