// SPDX-License-Identifier: Apache-2.0

// Package rights tests the rights of the driver's accounts on a real API server. The
// accounts come from the manifest that an administrator applies; no program of the
// driver runs. Writes are dry runs: they pass
// authentication, authorization, admission and validation, and change nothing.
package rights

import (
	"context"
	"flag"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var (
	bin  = flag.String("bin", "../../../.build/bin", "folder with the binaries that `make build` makes")
	name = flag.String("cluster", "rights", "name of the cluster to bring up")
	keep = flag.Bool("keep", false, "leave the cluster running afterwards")
)

// The world that all tests share; set once by TestMain.
var world *scene

func TestMain(m *testing.M) { harness.Main(m, "rights", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	cluster, err := harness.Up(ctx, *bin, *name)
	if err != nil {
		return 1, err
	}
	defer cluster.End(ctx, *keep, &err)
	if world, err = newScene(ctx, cluster); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
