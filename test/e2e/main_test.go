// SPDX-License-Identifier: Apache-2.0

// Package e2e tries the driver on a real cluster: every story of the demo, what
// happens when a part is restarted or breaks, and that nothing is left.
package e2e

import (
	"context"
	"flag"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var (
	bin  = flag.String("bin", "../../.build/bin", "folder with the binaries that `make build` makes")
	keep = flag.Bool("keep", false, "leave the cluster running afterwards")
	name = flag.String("cluster", "e2e", "name of the cluster to bring up")
)

// The cluster and the agent that all tests share; set once by TestMain.
var (
	cluster *harness.Cluster
	agent   *harness.Agent
)

func TestMain(m *testing.M) { harness.Main(m, "e2e", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = harness.Up(ctx, *bin, *name); err != nil {
		return 1, err
	}
	defer cluster.End(ctx, *keep, &err)
	if err := cluster.LoadImages(ctx); err != nil {
		return 1, err
	}
	agent = cluster.NewAgent("dgx-h100")
	if err := agent.Start(ctx); err != nil {
		return 1, err
	}
	if !*keep {
		defer func() {
			if uninstallErr := cluster.Uninstall(context.WithoutCancel(ctx)); err == nil {
				err = uninstallErr
			}
		}()
	}
	return m.Run(), nil
}
