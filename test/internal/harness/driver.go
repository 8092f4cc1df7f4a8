// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// driverProgram is the name of the simulated driver among the programs on the cluster's
// node.
const driverProgram = "gpu-sim-driver"

// StartDriver runs the kernel driver of CUDA processes without MPS, and waits until it
// serves. It is on the simulated hardware of the agent. Without it such processes allocate
// nothing. One that runs already is stopped first. It ends with the cluster.
//
// Call it before [Agent.Start]: an agent mounts the driver's socket into containers if the
// socket exists when the agent first prepares a claim. Containers keep the socket with
// which they were created, so a restarted driver serves new containers only.
func (a *Agent) StartDriver(ctx context.Context) error {
	if err := a.CreateNode(ctx); err != nil {
		return err
	}
	c := a.cluster
	return c.serve(ctx, driverProgram, a.DriverLog(), c.SimProgram("gpu-sim"), "driver", "--state", a.SimDir())
}

// CreateNode makes the simulated node before the agent's pod does.
func (a *Agent) CreateNode(ctx context.Context) error {
	model := a.model
	if strings.HasSuffix(model, ".yaml") {
		model = filepath.Join(a.cluster.Root, model)
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return err
	}
	return CreateNode(ctx, a.cluster.Bin, a.SimDir(), model)
}

// CreateNode makes a folder the driver root of a simulated node, unless it is one of that
// model. bin is the folder that `make build` fills.
func CreateNode(ctx context.Context, bin, folder, model string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "sim", "gpu-sim"), "create", "--if-missing", "--state", folder, "--model", model).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gpu-sim create: %w: %s", err, out)
	}
	return nil
}

// serve runs a program on the node, and waits for the line "serving …" in its log.
// It first stops a running program of that name.
func (c *Cluster) serve(ctx context.Context, name, log string, args ...string) error {
	if err := c.tool(ctx, "stop", name); err != nil {
		return err
	}
	// It has the line of the earlier program.
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.tool(ctx, append([]string{"start", name, "--log", log, "--"}, args...)...); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	err := Until(ctx, func(context.Context) (bool, string, error) {
		text, err := os.ReadFile(log)
		return strings.Contains("\n"+string(text), "\nserving "), "it does not serve yet", err
	})
	if err != nil {
		return fmt.Errorf("%s not ready: %w\n%s", name, err, tail(log))
	}
	return nil
}

// StopDriver ends the simulated driver, and with it the memory of its processes. Its
// socket stays, because containers may name it in their mounts.
func (a *Agent) StopDriver(ctx context.Context) error {
	return a.cluster.tool(ctx, "stop", driverProgram)
}

// DriverLog is where the output of the simulated driver goes.
func (a *Agent) DriverLog() string { return filepath.Join(a.dir, "driver.log") }
