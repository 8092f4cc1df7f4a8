// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
)

// hookToInstall returns the nvidia-cdi-hook in the folder of this program, as in the
// agent's image. It returns "" if the configuration names a hook of the host.
func (c *Config) hookToInstall() (string, error) {
	if c.CDIHook != "" {
		return "", nil
	}
	program, err := home.Program(home.HookName)
	if errors.Is(err, gpu.ErrNotFound) {
		return "", fmt.Errorf("--cdi-hook: %w: put it there, as `make build` does, or name the one of this host, such as --cdi-hook=/usr/bin/%s of NVIDIA's container toolkit", err, home.HookName)
	}
	return program, err
}

// hostRoot is the root of the host's file system, with its mounts. Only a privileged
// process in the host's PID namespace can use it.
const hostRoot = "/proc/1/root"

// checkMemoryLimits returns why this node cannot limit the GPU memory of containers,
// whatever the driver can do.
func (c *Config) checkMemoryLimits(hw *hardware) error {
	if !c.MemoryLimits {
		return fmt.Errorf("%w by this agent: set --memory-limits", gpu.ErrNotSupported)
	}
	return hw.checkContainers()
}

// memoryLimits limits the memory of containers.
type memoryLimits struct {
	ports *ports.MemoryLimits
	// err is why the containers of new claims get no limits; nil if they do.
	err error
}

// memoryLimits installs the memory hook in the folder of this program. If this agent has no
// hook that the host runs, prepared claims keep the limits of their containers, and new claims
// get none.
func (c *Config) memoryLimits(ctx context.Context, folder *home.Home, hw *hardware) memoryLimits {
	hook, err := c.installMemoryHook(folder, hw)
	if err == nil {
		err = hook.Try(ctx, hostRoot)
		if errors.Is(err, fs.ErrPermission) {
			// The first process of the machine has more rights than this one. The hook needs no
			// program or library of the host, so it runs there if it runs here.
			err = hook.Try(ctx, "")
		}
	}
	return memoryLimits{&ports.MemoryLimits{
		Folder: containerlimits.Folder(folder.Limits()),
		Hook: func(device string, address gpu.PCIAddress, bytes uint64, containers int) (gpu.Hook, error) {
			if err != nil {
				return gpu.Hook{}, err
			}
			return hook.OCIHook(device, address, bytes, containers), nil
		},
	}, cmp.Or(c.checkMemoryLimits(hw), err)}
}

// installMemoryHook installs the memory hook in the folder of this program.
func (c *Config) installMemoryHook(folder *home.Home, hw *hardware) (memoryhook.Installed, error) {
	installed, err := copyMemoryHook(folder)
	return memoryhook.Installed{
		Hook: installed.Hook, Call: installed.Call, Limits: folder.Limits(), DriverRoot: hw.hostDriverRoot(), Agent: folder.HookSocket(),
	}, err
}

func copyMemoryHook(folder *home.Home) (home.MemoryHook, error) {
	hook, err := home.Program(home.MemoryHookName)
	if err != nil {
		return home.MemoryHook{}, err
	}
	call, err := home.Program(home.MemoryCallName)
	if err != nil {
		return home.MemoryHook{}, err
	}
	return folder.InstallMemoryHook(hook, call)
}

// restoreHooks installs hooks that are gone or damaged, in each round until ctx ends. No
// container of a prepared claim starts without them, even if this agent limits no new ones.
func (a *agent) restoreHooks(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, a.ReconcileInterval, false, func(ctx context.Context) (bool, error) {
		program, err := a.hookToInstall()
		if program != "" {
			_, err = a.node.home.InstallHook(program)
		}
		_, limitsErr := copyMemoryHook(a.node.home)
		if err = errors.Join(err, limitsErr); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot restore the hooks, will retry", "err", err, "after", a.ReconcileInterval)
		}
		return false, nil
	})
}

// serveMemoryHooks sets memory limits for hooks until ctx ends. Without it each hook calls
// the driver itself.
func (a *agent) serveMemoryHooks(ctx context.Context) {
	logger := klog.FromContext(ctx)
	listener, err := memoryhook.Listen(a.node.home.HookSocket())
	if err != nil {
		logger.Error(err, "Memory hooks call the driver without the agent, which takes longer")
		return
	}
	listener.Serve(ctx, a.node.hardware, func(l containerlimits.Limit, err error) {
		switch {
		case err != nil && l.GPU == "":
			logger.Error(err, "Cannot serve a memory hook, which sets the limit itself")
		case err != nil:
			logger.Error(err, "Cannot set a memory limit for a hook, which tries it itself", "gpu", l.GPU, "cgroup", l.Cgroup, "bytes", l.Bytes)
		default:
			logger.V(2).Info("Set the memory limit of a container", "gpu", l.GPU, "cgroup", l.Cgroup, "bytes", l.Bytes)
		}
	})
}

// checkHook logs a missing hook before a container fails to start because of it.
// It returns no error: the path is the host's, and the agent's container may not see
// it.
func (c *Config) checkHook(ctx context.Context) {
	info, err := os.Stat(c.CDIHook)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%w: it is not a program", gpu.ErrInvalid)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find nvidia-cdi-hook, containers may not start", "setting", "--cdi-hook", "path", c.CDIHook,
			"remedy", "install NVIDIA's container toolkit on the host, unless only the agent's container lacks the hook")
	}
}
