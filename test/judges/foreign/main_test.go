// SPDX-License-Identifier: Apache-2.0

// Package foreign has NVIDIA's own programs judge the simulated hardware and this driver.
// They run on the node of a real cluster, as `make .build/bin/foreign/built` builds them.
package foreign

import (
	"context"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The cluster that all tests share; set once by TestMain.
var cluster *harness.Cluster

func TestMain(m *testing.M) {
	harness.Main(m, "foreign", func(ctx context.Context, c *harness.Cluster) error {
		cluster = c
		return c.LoadImages(ctx)
	})
}

var must = require.NoError
