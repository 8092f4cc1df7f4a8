// SPDX-License-Identifier: Apache-2.0

// Package rights tests the rights of the driver's accounts on a real API server. The
// accounts come from the manifest that an administrator applies; no program of the
// driver runs. Writes are dry runs: they pass
// authentication, authorization, admission and validation, and change nothing.
package rights

import (
	"context"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// The world that all tests share; set once by TestMain.
var world *scene

func TestMain(m *testing.M) {
	harness.Main(m, "rights", func(ctx context.Context, c *harness.Cluster) (err error) {
		world, err = newScene(ctx, c)
		return err
	})
}
