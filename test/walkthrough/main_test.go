// SPDX-License-Identifier: Apache-2.0

// Package walkthrough runs every command of the repository's documents on a real
// cluster, as a reader does who goes through a document from its top: in one
// shell, at the top of the repository, with kubectl, helm, ctr and crane at hand.
//
// What differs from a reader's machine is in bin, which comes first in the path,
// and scenes says what a document takes for granted. test/markdown says how a
// document marks what is special about a command. What the commands print is for
// people to judge, apart from a few promises in scenes.
package walkthrough

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

var (
	bin  = flag.String("bin", "../../.build/bin", "folder with the binaries that `make build` makes")
	keep = flag.Bool("keep", false, "leave the cluster running afterwards")
	name = flag.String("cluster", "walk", "name of the cluster to bring up")
)

// What all tests share; set once by TestMain.
var (
	cluster *harness.Cluster
	desk    *reader
	clean   *slate
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
	if clean, err = newSlate(ctx, cluster); err != nil {
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
