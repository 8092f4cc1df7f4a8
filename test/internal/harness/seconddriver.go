// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"path/filepath"
)

// secondDriverProgram is the name of the drivers of other devices among the programs on
// the cluster's node.
const secondDriverProgram = "second-driver"

// StartSecondDriver runs the drivers of a file of test/e2e/seconddriver, which publish NICs and
// CPUs. It waits until the kubelet has registered them. Drivers that run already are
// stopped first. They end with the cluster.
func (c *Cluster) StartSecondDriver(ctx context.Context, file string) error {
	return c.serve(ctx, secondDriverProgram, filepath.Join(c.StateDir, secondDriverProgram+".log"),
		c.SimProgram("seconddriver"), "-devices", filepath.Join(c.Root, file), "-node", c.NodeName, "-kubeconfig", c.Kubeconfig,
		"-plugins", c.PluginsDir, "-registry", c.PluginsRegistryDir, "-cdi", c.CDIDir)
}

// StopSecondDriver ends the drivers of [Cluster.StartSecondDriver], if they run.
func (c *Cluster) StopSecondDriver(ctx context.Context) error {
	return c.tool(ctx, "stop", secondDriverProgram)
}
