// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// revertTimeout limits how long [Library.SetMIGMode] reverts a mode after its
// context has ended.
const revertTimeout = time.Second

// ResetFunc resets the GPU at the address. NVML has no call for it.
type ResetFunc func(ctx context.Context, address gpu.PCIAddress) error

// AllowReset lets [Library.SetMIGMode] reset GPUs that are not in use.
func AllowReset(reset ResetFunc) Option { return func(l *Library) { l.reset = reset } }

// SetMIGMode switches the MIG mode of the GPU at the address. The mode is active
// when it returns nil. After an error no mode is pending for the next reset, unless
// the process ends meanwhile; see [Library.CancelPendingMIGMode]. The error wraps
// [gpu.ErrInUse] if a process or an instance uses the GPU, and
// [gpu.ErrNotSupported] if the mode takes a reset (Ampere) that is not allowed.
func (l *Library) SetMIGMode(ctx context.Context, address gpu.PCIAddress, on bool) error {
	mode, operation := nvml.DEVICE_MIG_DISABLE, "switch off the MIG mode of"
	if on {
		mode, operation = nvml.DEVICE_MIG_ENABLE, "switch on the MIG mode of"
	}
	// setMIGMode must revert the mode if its caller has stopped waiting, even if
	// ctx has not ended.
	attempt, abandon := context.WithCancel(ctx)
	needsReset, err := onGPU(ctx, l, address, operation, func(device nvml.Device) (bool, error) {
		return setMIGMode(attempt, device, mode, l.reset != nil)
	})
	abandon()
	if err != nil || !needsReset {
		return err
	}
	resetErr := l.reset(ctx, address)
	if ctx.Err() != nil {
		// Even after the end of ctx the mode must not stay pending.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), revertTimeout)
		defer cancel()
	}
	_, err = onGPU(ctx, l, address, operation, func(device nvml.Device) (struct{}, error) {
		current, _, ret := device.GetMigMode()
		if err := required("read its MIG mode", ret); err != nil || current == mode {
			return struct{}{}, err
		}
		err := resetErr
		if err == nil {
			err = fmt.Errorf("%w: it has not changed with a reset", gpu.ErrNotSupported)
		}
		return struct{}{}, errors.Join(err, revert(device, current))
	})
	return err
}

// MIGMode returns the MIG mode of the GPU at the address, and its mode after the
// next reset. Both are off on a GPU without MIG.
func (l *Library) MIGMode(ctx context.Context, address gpu.PCIAddress) (on, pending bool, err error) {
	type modes struct{ on, pending bool }
	both, err := onGPU(ctx, l, address, "read the MIG mode of", func(device nvml.Device) (modes, error) {
		current, next, ret := device.GetMigMode()
		if errors.Is(sentinelOf(ret), gpu.ErrNotSupported) {
			return modes{}, nil
		}
		return modes{current == nvml.DEVICE_MIG_ENABLE, next == nvml.DEVICE_MIG_ENABLE}, required("read its MIG mode", ret)
	})
	return both.on, both.pending, err
}

// CancelPendingMIGMode reverts a pending MIG mode of the GPU at the address. The
// next reset or reboot then does not change the mode. A process that ends between
// the two steps of [Library.SetMIGMode] leaves the mode pending.
// CancelPendingMIGMode succeeds if no mode is pending, also on a GPU without MIG.
// NVML does not report which program set a mode: the caller must know that it was
// not an administrator.
func (l *Library) CancelPendingMIGMode(ctx context.Context, address gpu.PCIAddress) error {
	_, err := onGPU(ctx, l, address, "take back the pending MIG mode of", func(device nvml.Device) (struct{}, error) {
		current, _, ret := device.GetMigMode()
		if errors.Is(sentinelOf(ret), gpu.ErrNotSupported) {
			return struct{}{}, nil
		}
		if err := required("read its MIG mode", ret); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, revert(device, current)
	})
	return err
}

// setMIGMode sets a mode and reports whether it needs a reset of the GPU. If ctx
// ended while the driver hung, setMIGMode reverts the mode, because its caller does
// not reset the GPU any more.
func setMIGMode(ctx context.Context, device nvml.Device, mode int, mayReset bool) (needsReset bool, err error) {
	current, pending, ret := device.GetMigMode()
	if err := required("read its MIG mode", ret); err != nil {
		return false, err
	}
	if current == mode && pending == mode {
		return false, nil
	}
	activation, ret := device.SetMigMode(mode)
	switch {
	case ret != nvml.SUCCESS:
		err = check("set the mode", ret)
	case activation == nvml.SUCCESS || current == mode:
		return false, nil
	case activation != nvml.ERROR_RESET_REQUIRED:
		err = check("activate the mode", activation)
	case !mayReset:
		err = fmt.Errorf("%w without a reset of the GPU: allow it with --mig-allow-reset, or do it with nvidia-smi -i <GPU> -mig %d and nvidia-smi -i <GPU> --gpu-reset", gpu.ErrNotSupported, mode)
	case len(users(device)) > 0:
		err = fmt.Errorf("%w: it takes a reset of the GPU", gpu.ErrInUse)
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", gpu.ErrTimeout, context.Cause(ctx))
	default:
		return true, nil
	}
	if errors.Is(err, gpu.ErrInUse) {
		err = fmt.Errorf("%w; %s", err, whoUses(device))
	}
	return false, errors.Join(err, revert(device, current))
}

// revert sets the pending mode to the current one and checks the result. A pending
// mode would become active with any later reset.
func revert(device nvml.Device, current int) error {
	_, pending, ret := device.GetMigMode()
	if ret == nvml.SUCCESS && pending == current {
		return nil
	}
	if _, ret = device.SetMigMode(current); ret != nvml.SUCCESS {
		return check("take back the mode", ret)
	}
	_, pending, ret = device.GetMigMode()
	if err := check("read its MIG mode", ret); err != nil {
		return err
	}
	if pending != current {
		return fmt.Errorf("take back the mode: %w: it still waits for a reset; undo it with nvidia-smi -i <GPU> -mig %d", gpu.ErrNotSupported, current)
	}
	return nil
}

// whoUses returns the advice for a GPU in use, with the PIDs of its processes.
func whoUses(device nvml.Device) string {
	if pids := users(device); len(pids) > 0 {
		return fmt.Sprintf("stop what uses the GPU: process %s", strings.Join(pids, ", "))
	}
	return "stop what uses the GPU, such as monitoring agents, or destroy the instances on it"
}

func users(device nvml.Device) []string {
	var pids []string
	if processes, ret := device.GetComputeRunningProcesses(); ret == nvml.SUCCESS {
		for _, p := range processes {
			pids = append(pids, fmt.Sprint(p.Pid))
		}
	}
	return pids
}
