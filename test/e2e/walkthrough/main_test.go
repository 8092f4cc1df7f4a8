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
	"os"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// Shared by all tests; set once by TestMain.
var (
	cluster *harness.Cluster
	desk    *reader
	clean   *harness.Baseline
)

func TestMain(m *testing.M) {
	harness.Main(m, "walk", func(ctx context.Context, c *harness.Cluster) error {
		cluster = c
		if err := c.LoadImages(ctx); err != nil {
			return err
		}
		var err error
		if clean, err = harness.NewBaseline(ctx, c); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "walkthrough-")
		if err != nil {
			return err
		}
		c.AtEnd(func(context.Context) error { return os.RemoveAll(dir) })
		if desk, err = newReader(ctx, c, dir); err != nil {
			return err
		}
		c.AtEnd(func(context.Context) error { desk.close(); return nil })
		return nil
	})
}
