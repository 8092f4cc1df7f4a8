// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// printTimeout bounds the scan of the GPUs. The driver takes seconds for each GPU
// that no other process has open.
const printTimeout = 30 * time.Second

// PrintSlices scans the GPUs once and writes the ResourceSlices that the agent
// would publish to w. It writes one line to problems for each reason why a device is
// missing: a GPU that cannot be read, or an offer of the node that a GPU does not
// allow. It also writes one line if requested attributes do not exist. It returns an error,
// and writes no slices, if the node has GPUs and none can be read.
func PrintSlices(ctx context.Context, c *Config, w, problems io.Writer) (err error) {
	hw := openHardware(c)
	defer func() { err = errors.Join(err, hw.close()) }() //nolint:contextcheck // closing comes after ctx has ended
	return printSlices(ctx, c, hw, w, problems)
}

// printSlices is PrintSlices for hardware that is open.
func printSlices(ctx context.Context, c *Config, hw *hardware, w, problems io.Writer) error {
	limited, cancel := context.WithTimeout(ctx, printTimeout)
	defer cancel()
	node, err := inventory.Read(limited, hw.machine, hw.SnapshotOfAll)
	if err != nil {
		return fmt.Errorf("read the GPUs: %w", err)
	}
	known := state.New(state.Fixed{NoMemoryLimits: c.checkMemoryLimits(hw)})
	known.Hardware.Set(state.HardwareOf(node))
	config, err := c.unlabelled(known)
	if err != nil {
		return err
	}
	node = known.Snapshot().Node()
	layout, err := config.MIG.Layout(node)
	if err != nil {
		return err
	}
	devices := catalog.New(catalog.Inputs{Settings: c.settings(), NodeConfig: config, Partitions: layout})
	lines := append(unread(node), devices.Withheld(node)...)
	if c.UnknownAttributes != nil {
		lines = append(lines, c.UnknownAttributes.Error())
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(problems, line); err != nil {
			return err
		}
	}
	if len(node.GPUs) == 0 && len(node.Unreadable) > 0 {
		return fmt.Errorf("%w: none of the %d GPUs can be read", gpu.ErrNotReady, len(node.Unreadable))
	}
	return catalog.WriteList(w, catalog.PrintedSlices(c.DriverName, c.NodeName, devices.Resources(node, nil)))
}

// unlabelled returns the configuration of the node if it has no labels.
func (c *Config) unlabelled(known *state.State) (catalog.NodeConfig, error) {
	config := c.newNodeConfig(nil, &known.Configuration)
	config.SetNode(cluster.Node{}, nil)
	if c.NodeConfigs != "" {
		config.SetNamed(c.parseNodeConfigs(os.ReadFile(c.NodeConfigs)))
	}
	if c.MIGLayouts != "" {
		config.SetLayouts(c.parseLayouts(os.ReadFile(c.MIGLayouts)))
	}
	return config.Selected()
}

// unread returns why GPUs are missing from a scan.
func unread(node gpu.Node) []string {
	var lines []string
	for _, u := range node.Unreadable {
		lines = append(lines, u.Problem().Error())
	}
	if len(node.GPUs)+len(node.Unreadable) == 0 {
		lines = append(lines, "the driver lists no GPU")
	}
	return lines
}
