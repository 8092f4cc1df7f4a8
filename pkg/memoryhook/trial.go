// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// callPatience is the time for the hook's call into the driver. The call starts a GPU
	// that no process has open. The runtime kills the hook after hookTimeout.
	callPatience, hookTimeout = 25 * time.Second, 30 * time.Second
	// trialPatience is the timeout of a trial of the hook, which starts and ends.
	trialPatience = 10 * time.Second
)

// Installed is the program at the path of its installation on a host.
type Installed struct {
	// Command runs the program. Its last word is the program itself.
	Command []string
	// Limits is the folder with the limits of containers, and DriverRoot that of the driver
	// on the host.
	Limits, DriverRoot string
}

// Hook returns the OCI hook that limits the memory of each container with a device.
func (i Installed) Hook(device string, address gpu.PCIAddress, bytes uint64, containers int) gpu.Hook {
	return gpu.Hook{Path: i.Command[0], Timeout: hookTimeout, Args: append(i.Command[:len(i.Command):len(i.Command)],
		"--limits", i.Limits, "--device", device, "--gpu", address.String(), "--driver-root", i.DriverRoot,
		"--bytes", strconv.FormatUint(bytes, 10), "--containers", strconv.Itoa(containers), "--timeout", callPatience.String(),
	)}
}

// Try runs the program once as the container runtime does: from a root, whose mounts may
// forbid programs, and without an environment. An empty root is the root of this process.
// The error says what to do.
func (i Installed) Try(ctx context.Context, root string) error {
	ctx, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	trial := exec.CommandContext(ctx, i.Command[0], append(i.Command[1:len(i.Command):len(i.Command)], "--check")...)
	trial.Env, trial.Dir, trial.WaitDelay = []string{}, "/", time.Second
	if root != "" {
		trial.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	if out, err := trial.CombinedOutput(); err != nil {
		return fmt.Errorf("the host does not run %s: %w: %s: mount its folder without noexec, and let SELinux or AppArmor admit it", i.Command[len(i.Command)-1], err, bytes.TrimSpace(out))
	}
	return nil
}
