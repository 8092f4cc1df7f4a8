// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// fleet applies everything at once and prints the use of each GPU and namespace.
func fleet(ctx context.Context, cluster *harness.Cluster) error {
	say("applying demo/fleet: four training jobs, twenty inference servers, thirty notebooks")
	if _, err := cluster.Kubectl(ctx, "apply", "-f", "demo/fleet/training.yaml", "-f", "demo/fleet/serving.yaml", "-f", "demo/fleet/notebooks.yaml"); err != nil {
		return err
	}
	for _, team := range []struct {
		namespace string
		pods      int
	}{{"training", 4}, {"serving", 20}, {"notebooks", 30}} {
		if err := cluster.WaitCount(ctx, team.namespace, team.pods); err != nil {
			return err
		}
		say("all %d pods of %s are ready", team.pods, team.namespace)
	}
	if err := show(ctx, cluster, "training"); err != nil {
		return err
	}
	return kubectlGPU(ctx, cluster, "usage")
}
