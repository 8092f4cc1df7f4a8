// SPDX-License-Identifier: Apache-2.0

// Package nodes tries the driver on a cluster of three nodes under load: nodes are drained and replaced,
// daemons restart, the API server is away, and the driver is updated. All nodes are on one machine, each with
// folders, a network namespace, a kubelet and simulated GPUs of its own.
package nodes

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var duration = flag.Duration("duration", time.Hour, "how long new claims are created, at least until each event has happened")

// Shared by all tests; set once by TestMain.
var (
	cluster *harness.Cluster
	agent   *harness.Agent
)

const (
	model = "dgx-h100"
	offer = "--offer=share,mig"
)

func TestMain(m *testing.M) {
	harness.Main(m, "nodes", func(ctx context.Context, c *harness.Cluster) error {
		cluster = c
		if err := c.AddNodes(ctx, 3); err != nil {
			return err
		}
		for _, node := range c.Nodes() {
			if err := node.LoadImages(ctx); err != nil {
				return err
			}
		}
		agent = c.NewAgent(model, offer)
		return agent.Start(ctx)
	})
}

var must = require.NoError
