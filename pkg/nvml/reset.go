// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// ResetWith resets GPUs with the nvidia-smi of a driver, which refuses a GPU in
// use.
func ResetWith(root gpu.DriverRoot) ResetFunc {
	smi := NewSMI(root)
	return func(ctx context.Context, address gpu.PCIAddress) error {
		_, err := smi.run(ctx, address, "reset", "--gpu-reset", "-i", address.String())
		// It has one exit status for a GPU in use and for all that has no
		// status of its own.
		if err != nil && !mapped(err) {
			err = fmt.Errorf("%w: %w", gpu.ErrInUse, err)
		}
		return err
	}
}

// mapped reports whether an error says what is wrong.
func mapped(err error) bool {
	for _, sentinel := range []error{gpu.ErrNotFound, gpu.ErrInUse, gpu.ErrNotSupported, gpu.ErrInvalid, gpu.ErrNotReady, gpu.ErrLost, gpu.ErrPermission, gpu.ErrTimeout} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
