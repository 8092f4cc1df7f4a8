// SPDX-License-Identifier: Apache-2.0

// Package foreign has NVIDIA's own programs judge the simulated hardware and this driver.
// They run on the node of a real cluster, as `make .build/bin/foreign/built` builds them.
package foreign

import (
	"context"
	"flag"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var (
	bin  = flag.String("bin", "../../../.build/bin", "folder with the binaries that `make .build/bin/foreign/built` makes")
	keep = flag.Bool("keep", false, "leave the cluster running afterwards")
	name = flag.String("cluster", "foreign", "name of the cluster to bring up")
)

// The cluster that all tests share; set once by TestMain.
var cluster *harness.Cluster

func TestMain(m *testing.M) { harness.Main(m, "foreign", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = harness.Up(ctx, *bin, *name); err != nil {
		return 1, err
	}
	defer cluster.End(ctx, *keep, &err)
	if err := cluster.LoadImages(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

var must = require.NoError
