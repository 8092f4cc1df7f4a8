// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// heldNamespace is the namespace of demo/held.
const heldNamespace = "held"

// held runs a greedy container and its neighbour on a node whose driver limits memory.
func held(ctx context.Context, cluster *harness.Cluster) error {
	return sideBySide(ctx, cluster, func(manifest string) string { return manifest })
}

// heldOlder shows that an older driver does not admit the same claims. It also
// shows the memory of the containers without their requirement.
func heldOlder(ctx context.Context, cluster *harness.Cluster) error {
	say("applying demo/held/greedy.yaml")
	if _, err := cluster.Kubectl(ctx, "apply", "-f", "demo/held/greedy.yaml"); err != nil {
		return err
	}
	reason, err := cluster.WaitEvent(ctx, heldNamespace, "greedy", "the ShareConfig requires driver")
	if err != nil {
		return err
	}
	say("the claim is refused: %s", reason)
	if err := cluster.EmptyNamespace(ctx, heldNamespace); err != nil {
		return err
	}
	say("both manifests without the line \"require: driver\"")
	return sideBySide(ctx, cluster, func(manifest string) string {
		return strings.ReplaceAll(manifest, "          require: driver\n", "")
	})
}

// sideBySide applies the edited manifests of demo/held, and prints the memory of
// both containers. It applies the second when the greedy container has all the
// memory that it can allocate.
func sideBySide(ctx context.Context, cluster *harness.Cluster, edit func(string) string) error {
	for _, name := range []string{"greedy", "well-behaved"} {
		path := "demo/held/" + name + ".yaml"
		say("applying %s", path)
		manifest, err := os.ReadFile(filepath.Join(cluster.Root, path))
		if err != nil {
			return err
		}
		if _, err := cluster.KubectlInput(ctx, edit(string(manifest)), "apply", "-f", "-"); err != nil {
			return err
		}
		got, err := cluster.CUDA(ctx, heldNamespace, name, "main")
		if err != nil {
			return err
		}
		say("%s has %dMi; the error of CUDA: %s", name, got.AllocatedBytes>>20, cudaError(got))
	}
	return kubectlGPU(ctx, cluster, "who", "--namespace", heldNamespace, "--used")
}

// cudaError returns the error that ended a container or its allocations, or none.
func cudaError(got harness.CUDA) string {
	name := cmp.Or(got.Error.Name, got.Refused.Name)
	for _, p := range got.Processes {
		name = cmp.Or(name, p.Refused.Name)
	}
	return cmp.Or(name, "none")
}
