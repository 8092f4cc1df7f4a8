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

// revertTimeout bounds how long [Library.SetMIGMode] takes a mode back after the
// time of its caller is over.
const revertTimeout = time.Second

// ResetFunc resets the GPU at the address. NVML has no call for it.
type ResetFunc func(ctx context.Context, address gpu.PCIAddress) error

// AllowReset lets [Library.SetMIGMode] reset GPUs that nothing uses. It is
// called before anything else.
func (l *Library) AllowReset(reset ResetFunc) { l.reset = reset }

// SetMIGMode switches the MIG mode of the GPU at the address, and has an effect
// when it returns without an error. With an error nothing is left pending for
// the next reset, unless the process ends meanwhile; see
// [Library.CancelPendingMIGMode]. The error wraps [gpu.ErrInUse] while a process or an instance
// uses the GPU, and [gpu.ErrNotSupported] where the mode takes a reset (Ampere)
// that is not allowed.
func (l *Library) SetMIGMode(ctx context.Context, address gpu.PCIAddress, on bool) error {
	mode, operation := nvml.DEVICE_MIG_DISABLE, "switch off the MIG mode of"
	if on {
		mode, operation = nvml.DEVICE_MIG_ENABLE, "switch on the MIG mode of"
	}
	// A call that is given up must know, whether ctx has ended or not.
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
		// The mode must not stay pending because the caller's time is over.
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

// MIGMode reads the MIG mode of the GPU at the address now, and the one that it
// has after its next reset. Both are off on a GPU without MIG.
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

// CancelPendingMIGMode takes back a MIG mode of the GPU at the address that waits
// for a reset, so that the next reset or reboot leaves the mode as it is now. It
// mends what a process leaves that ends between the two steps of
// [Library.SetMIGMode]. It succeeds if nothing is pending, also on a GPU without
// MIG. NVML does not tell who has set a mode: callers must know that the pending
// one is theirs and no administrator's.
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

// setMIGMode sets a mode and reports whether it waits for a reset. If ctx has ended
// meanwhile, because the driver hung, nobody resets the GPU and the mode is taken
// back.
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

// revert takes back a mode that waits for a reset, which may come for other
// reasons, and checks that nothing is pending any more.
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

// whoUses says what keeps a GPU busy and what to do about it.
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
