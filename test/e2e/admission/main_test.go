// SPDX-License-Identifier: Apache-2.0

// Package admission tests the chart's ValidatingAdmissionPolicies on a real API
// server. The policies and DeviceClasses come from the manifest that an administrator
// applies; no program of the driver runs. Every case is a dry run.
//
// testdata holds the matrix of cases. The policies' verdicts on parameters are compared
// with those of the agent's decoder.
package admission

import (
	"context"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// The world that all tests share; set once by TestMain.
var world *scene

func TestMain(m *testing.M) {
	harness.Main(m, "admission", func(ctx context.Context, c *harness.Cluster) error {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		if err != nil {
			return err
		}
		config.QPS = -1
		// Of older versions of the API, on purpose.
		config.WarningHandler = rest.NoWarnings{}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		world, err = newScene(ctx, client)
		return err
	})
}
