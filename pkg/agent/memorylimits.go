// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
)

// The time for the hook's call into the driver, which starts a GPU that no process has
// open, and the time after which the runtime kills the hook.
const (
	hookPatience = 25 * time.Second
	hookTimeout  = 30 * time.Second
)

// checkMemoryLimits returns why this node cannot limit the GPU memory of containers,
// whatever the driver can do.
func (c *Config) checkMemoryLimits() error {
	if !c.MemoryLimits {
		return fmt.Errorf("%w by this agent: set %s", gpu.ErrNotSupported, c.Names.MemoryLimits)
	}
	if _, simulated := c.simulated(); simulated {
		_, err := cgroup.Root()
		return err
	}
	return cgroup.CheckSystem()
}

// ownCgroup returns the folder of this process' cgroup; empty if it cannot be found, as
// on a node with cgroups of version 1.
func ownCgroup() string {
	folder, err := cgroup.OfProcess(os.Getpid())
	if err != nil {
		return ""
	}
	return folder
}

// memoryLimits returns the parts that limit the memory of containers. If this agent has
// no hook, prepared claims keep the limits of their containers, and new claims get none;
// the error says why.
func (c *Config) memoryLimits(ctx context.Context, h *home.Home, hw *hardware) (*ports.MemoryLimits, error) {
	l := &ports.MemoryLimits{Folder: limits.Folder(h.Limits())}
	command, err := c.installMemoryHook(h)
	if err == nil {
		err = c.checkMemoryHook(ctx, command)
	}
	l.Hook = func(device string, address gpu.PCIAddress, bytes uint64, containers int) (gpu.Hook, error) {
		if err != nil {
			return gpu.Hook{}, err
		}
		return gpu.Hook{Path: command[0], Timeout: hookTimeout, Args: append(command[:len(command):len(command)],
			"--limits", h.Limits(), "--device", device, "--gpu", address.String(), "--driver-root", hw.hostDriverRoot(),
			"--bytes", strconv.FormatUint(bytes, 10), "--containers", strconv.Itoa(containers), "--timeout", hookPatience.String(),
		)}, nil
	}
	return l, err
}

// installMemoryHook installs the hook in the folder of this program and returns its
// command.
func (c *Config) installMemoryHook(h *home.Home) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), home.MemoryHookName)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s to install", gpu.ErrNotFound, program)
	}
	return h.InstallMemoryHook(program)
}

// hostRoot is the root of the host's file system, with its mounts, for a privileged process
// in its PID namespace.
const hostRoot = "/proc/1/root"

// checkPatience is the timeout of a trial of the hook, which starts and ends.
const checkPatience = 10 * time.Second

// checkMemoryHook runs the hook once as the container runtime does: from the host's file
// system, whose mounts may forbid programs, and without an environment. The simulated agent
// has no right to enter that.
func (c *Config) checkMemoryHook(ctx context.Context, command []string) error {
	root := ""
	if _, simulated := c.simulated(); !simulated {
		root = hostRoot
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	return tryHook(ctx, command, root)
}

// tryHook runs a hook with --check below a root; empty for that of this process. The error
// says what to do.
func tryHook(ctx context.Context, command []string, root string) error {
	trial := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "--check")...)
	trial.Env, trial.Dir, trial.WaitDelay = []string{}, "/", time.Second
	if root != "" {
		trial.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	if out, err := trial.CombinedOutput(); err != nil {
		return fmt.Errorf("the host does not run %s: %w: %s: mount its folder without noexec, and let SELinux or AppArmor admit it", command[len(command)-1], err, bytes.TrimSpace(out))
	}
	return nil
}
