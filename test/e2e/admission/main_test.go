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
	"flag"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var (
	bin        = flag.String("bin", "../../../.build/bin", "folder with the binaries that `make build` makes")
	name       = flag.String("cluster", "admission", "name of the cluster to bring up")
	keep       = flag.Bool("keep", false, "leave the cluster running afterwards")
	kubeconfig = flag.String("kubeconfig", "", "use this API server, which is then given the policies and classes, instead of a cluster of its own")
)

// The world that all tests share; set once by TestMain.
var world *scene

func TestMain(m *testing.M) { harness.Main(m, "admission", runAll) }

func runAll(ctx context.Context, m *testing.M) (code int, err error) {
	if *kubeconfig == "" {
		cluster, upErr := harness.Up(ctx, *bin, *name)
		if upErr != nil {
			return 1, upErr
		}
		defer cluster.End(ctx, *keep, &err)
		*kubeconfig = cluster.Kubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return 1, err
	}
	config.QPS = -1
	// Of older versions of the API, on purpose.
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 1, err
	}
	if world, err = newScene(ctx, client); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
