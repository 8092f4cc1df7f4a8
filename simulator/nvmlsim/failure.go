// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"io/fs"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// refusal carries an NVML return code out of a change of the state.
type refusal nvml.Return

func (r refusal) Error() string { return nvml.Return(r).Error() }

// returnOf is [OpenReturn] for an error of a call, which may be a refusal.
func returnOf(err error) nvml.Return {
	if refused := refusal(0); errors.As(err, &refused) {
		return nvml.Return(refused)
	}
	return OpenReturn(err)
}

// OpenReturn returns the NVML code for an error of a node's files. The node stands for the
// kernel driver: without its files no driver is loaded, and files of another release are as a
// kernel driver of another release. Files that cannot be read are an unknown error.
func OpenReturn(err error) nvml.Return {
	switch {
	case err == nil:
		return nvml.SUCCESS
	case errors.Is(err, simerr.ErrMismatch):
		return nvml.ERROR_LIB_RM_VERSION_MISMATCH
	case errors.Is(err, simerr.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nvml.ERROR_DRIVER_NOT_LOADED
	case isRefused(err):
		return nvml.ERROR_NO_PERMISSION
	}
	return nvml.ERROR_UNKNOWN
}

// isRefused reports whether this process may not use a file as it wants to.
func isRefused(err error) bool {
	return errors.Is(err, simerr.ErrPermission) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}
