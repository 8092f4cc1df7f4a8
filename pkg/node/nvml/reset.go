// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ResetWith returns a function that resets a GPU with the driver's nvidia-smi. The
// program refuses if the GPU is in use.
func ResetWith(root gpu.DriverRoot) ResetFunc {
	smi := NewSMI(root)
	return func(ctx context.Context, address gpu.PCIAddress) error {
		_, err := smi.run(ctx, address, "reset", "--gpu-reset", "-i", address.String())
		// A GPU in use has the same exit status as all errors without a status of
		// their own.
		if err != nil && !mapped(err) {
			err = fmt.Errorf("%w: a program has the GPU open, which fuser --verbose /dev/nvidia* names on the node; %s has the command that ends it: %w", gpu.ErrInUse, gpu.Page("docs/admin/failed-gpus.md#reset-a-gpu"), err)
		}
		return err
	}
}

// mapped reports whether an error wraps a sentinel for its cause.
func mapped(err error) bool {
	for _, sentinel := range []error{gpu.ErrNotFound, gpu.ErrInUse, gpu.ErrNotSupported, gpu.ErrInvalid, gpu.ErrNotReady, gpu.ErrLost, gpu.ErrPermission, gpu.ErrTimeout} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
