// SPDX-License-Identifier: Apache-2.0

// Package walkthrough runs every command of the repository's documents on a real cluster.
// It runs them as a reader of a document would from its top: in one shell, at the top of
// the repository, with kubectl, helm, ctr and crane in the path.
//
// The folder bin, which is first in the path, hides differences to a reader's machine, and
// scenes has the state of the cluster that each document requires. test/internal/markdown
// describes how a document marks special commands. Only the outputs in scenes are checked.
package walkthrough

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var (
	bin  = flag.String("bin", "../../../.build/bin", "folder with the binaries that `make build` makes")
	keep = flag.Bool("keep", false, "leave the cluster running afterwards")
	name = flag.String("cluster", "walk", "name of the cluster to bring up")
)

// Shared by all tests; set once by TestMain.
var (
	cluster *harness.Cluster
	desk    *reader
	clean   *harness.Baseline
)

func TestMain(m *testing.M) { harness.Main(m, "walkthrough", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if cluster, err = harness.Up(ctx, *bin, *name); err != nil {
		return 1, err
	}
	defer cluster.End(ctx, *keep, &err)
	if err := cluster.LoadImages(ctx); err != nil {
		return 1, err
	}
	if clean, err = harness.NewBaseline(ctx, cluster); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "walkthrough-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of our own
	if desk, err = newReader(ctx, cluster, dir); err != nil {
		return 1, err
	}
	defer desk.close()
	return m.Run(), nil
}
