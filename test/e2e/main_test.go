// SPDX-License-Identifier: Apache-2.0

// Package e2e tries the driver on a real cluster: every story of the demo, what
// happens when a part is restarted or breaks, and that nothing is left.
package e2e

import (
	"context"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// The cluster and the agent that all tests share; set once by TestMain.
var (
	cluster *harness.Cluster
	agent   *harness.Agent
)

func TestMain(m *testing.M) {
	harness.Main(m, "e2e", func(ctx context.Context, c *harness.Cluster) error {
		cluster = c
		if err := c.LoadImages(ctx); err != nil {
			return err
		}
		agent = c.NewAgent("dgx-h100")
		c.AtEnd(c.Uninstall)
		return agent.Start(ctx)
	})
}
