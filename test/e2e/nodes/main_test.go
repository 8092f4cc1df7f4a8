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

var (
	bin      = flag.String("bin", "../../../.build/bin", "folder with the binaries that `make build` makes")
	keep     = flag.Bool("keep", false, "leave the cluster running afterwards")
	name     = flag.String("cluster", "nodes", "name of the cluster to bring up")
	duration = flag.Duration("duration", time.Hour, "how long new claims are created, at least until each event has happened")
)

// Shared by all tests; set once by TestMain.
var (
	cluster *harness.Cluster
	agent   *harness.Agent
)

const (
	model = "dgx-h100"
	offer = "--offer=share,mig"
)

func TestMain(m *testing.M) { harness.Main(m, "nodes", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = harness.Up(ctx, *bin, *name); err != nil {
		return 1, err
	}
	defer cluster.End(ctx, *keep, &err)
	if err := cluster.AddNodes(ctx, 3); err != nil {
		return 1, err
	}
	for _, node := range cluster.Nodes() {
		if err := node.LoadImages(ctx); err != nil {
			return 1, err
		}
	}
	agent = cluster.NewAgent(model, offer)
	if err := agent.Start(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

var must = require.NoError
