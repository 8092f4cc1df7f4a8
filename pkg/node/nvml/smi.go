// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// smiLimit bounds a run of nvidia-smi. A reset of a GPU takes many seconds.
const smiLimit = time.Minute

// SMI runs a driver's nvidia-smi for operations that NVML does not have. Its methods
// may be called from several goroutines. A run that does not end is given up in the
// same way as a call of [Library] that does not return.
type SMI struct {
	root gpu.DriverRoot

	mu     sync.Mutex
	guards map[gpu.PCIAddress]*guard
}

// NewSMI returns an SMI for the driver in root, which may be installed later.
func NewSMI(root gpu.DriverRoot) *SMI {
	return &SMI{root: root, guards: map[gpu.PCIAddress]*guard{}}
}

// run runs nvidia-smi with the given arguments for a GPU and returns its output. The
// error wraps the sentinel for the exit status, [gpu.ErrNotReady] if there is no
// nvidia-smi, or [gpu.ErrTimeout] if ctx ended first.
func (s *SMI) run(ctx context.Context, address gpu.PCIAddress, what string, args ...string) (string, error) {
	operation := fmt.Sprintf("%s %s with nvidia-smi", what, address)
	// The guard's limit is longer than that of ctx, so nvidia-smi is killed before
	// its run is given up. A run that continued could still reset the GPU.
	ctx, cancel := context.WithTimeout(ctx, smiLimit)
	defer cancel()
	return doWithin(ctx, s.guard(address), 2*smiLimit, operation, func() (string, error) {
		program, err := s.root.Find("nvidia-smi", os.Stat)
		if err != nil {
			return "", fmt.Errorf("%s: %w", operation, err)
		}
		out, err := output(ctx, program, append(os.Environ(), s.root.Environment()...), args...)
		if err != nil {
			return "", fmt.Errorf("%s: %w", operation, err)
		}
		return out, nil
	})
}

// output runs nvidia-smi and returns its output. The error wraps the sentinel for
// the exit status, or [gpu.ErrTimeout] if ctx ended first.
func output(ctx context.Context, program string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	// Kill its children too: they would keep its output open.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return string(out), nil
	case ctx.Err() != nil && cmd.ProcessState.ExitCode() < 0: // not started, or killed
		return "", fmt.Errorf("%w: no answer from nvidia-smi: %w", gpu.ErrTimeout, context.Cause(ctx))
	}
	return "", smiError(err, strings.TrimSpace(string(out)))
}

func (s *SMI) guard(address gpu.PCIAddress) *guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guards[address]
	if g == nil {
		g = newGuard(nil)
		s.guards[address] = g
	}
	return g
}

// smiError wraps an error of nvidia-smi with the sentinel for its exit status or
// its cause.
func smiError(err error, output string) error {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		// Its exit statuses are NVML's return codes, with 255 for the rest.
		if sentinel := sentinelOf(nvml.Return(exit.ExitCode())); sentinel != nil && exit.ExitCode() > 1 {
			return fmt.Errorf("%w: %w: %s", sentinel, err, output)
		}
		return fmt.Errorf("%w: %s", err, output)
	case errors.Is(err, fs.ErrNotExist): // removed meanwhile, or its loader is missing
		return fmt.Errorf("%w: %w: install the NVIDIA driver or correct the driver root (--driver-root)", gpu.ErrNotReady, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", gpu.ErrPermission, err)
	default:
		return err
	}
}
