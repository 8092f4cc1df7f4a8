// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
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

// Installed is the hook at the path of its installation on a host.
type Installed struct {
	// Hook is the path of the hook. Call is the command of the program that calls the driver.
	Hook string
	Call []string
	// Limits is the folder with the limits of containers, and DriverRoot that of the driver
	// on the host. Agent is the socket of the agent.
	Limits, DriverRoot, Agent string
}

// OCIHook returns the OCI hook that limits the memory of each container with a device.
func (i Installed) OCIHook(device string, address gpu.PCIAddress, bytes uint64, containers int) gpu.Hook {
	return gpu.Hook{Path: i.Hook, Timeout: hookTimeout, Args: slices.Concat([]string{
		i.Hook, "--limits", i.Limits, "--device", device, "--gpu", address.String(), "--bytes", strconv.FormatUint(bytes, 10),
		"--containers", strconv.Itoa(containers), "--timeout", callPatience.String(), "--agent", i.Agent, "--",
	}, i.Call, []string{"--driver-root", i.DriverRoot})}
}

// Try runs both programs once as the container runtime does: from a root, whose mounts may
// forbid programs, and without an environment. An empty root is the root of this process.
// The error says what to do.
func (i Installed) Try(ctx context.Context, root string) error {
	ctx, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	trial := exec.CommandContext(ctx, i.Hook, slices.Concat([]string{checkFlag, "--"}, i.Call)...)
	trial.Env, trial.Dir, trial.WaitDelay = []string{}, "/", time.Second
	if root != "" {
		trial.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	if out, err := trial.CombinedOutput(); err != nil {
		return fmt.Errorf("the host does not run %s: %w: %s: mount its folder without noexec, and let SELinux or AppArmor admit it", i.Hook, err, bytes.TrimSpace(out))
	}
	return nil
}
