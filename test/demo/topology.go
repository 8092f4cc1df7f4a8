// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// quads shows on a DGX-1 that four GPUs by number span sockets. A claim for linked GPUs
// gets one of the machine's two quads.
func quads(ctx context.Context, cluster *harness.Cluster) error {
	if err := start(ctx, cluster, "busy", "notebook-0", "notebook-1"); err != nil {
		return err
	}
	if err := start(ctx, cluster, "any-four", "any-four"); err != nil {
		return err
	}
	say("any-four spans both sockets, and no GPU of it is linked with all others")
	if err := kubectlGPU(ctx, cluster, "topo", cluster.NodeName); err != nil {
		return err
	}
	if err := remove(ctx, cluster, "any-four"); err != nil {
		return err
	}
	if err := start(ctx, cluster, "four-linked", "four-linked"); err != nil {
		return err
	}
	say("four-linked has the quad that is free")
	return kubectlGPU(ctx, cluster, "topo", cluster.NodeName)
}

// sockets shows on a DGX A100 that four GPUs of one socket exist. Four of one NUMA node do
// not: each has two GPUs.
func sockets(ctx context.Context, cluster *harness.Cluster) error {
	if err := start(ctx, cluster, "busy", "notebook-0", "notebook-1"); err != nil {
		return err
	}
	if err := waits(ctx, cluster, "four-numa"); err != nil {
		return err
	}
	if err := start(ctx, cluster, "four-socket", "four-socket"); err != nil {
		return err
	}
	say("four-socket has the socket that is free")
	return kubectlGPU(ctx, cluster, "topo", cluster.NodeName)
}

// neighbours shows on a DGX H100 four GPUs of one NUMA node, and a whole node. It
// also shows GPUs together with NICs and CPUs of other drivers.
func neighbours(ctx context.Context, cluster *harness.Cluster) error {
	if err := start(ctx, cluster, "busy", "notebook-0", "notebook-1"); err != nil {
		return err
	}
	if err := start(ctx, cluster, "four-numa", "four-numa"); err != nil {
		return err
	}
	if err := waits(ctx, cluster, "whole-node"); err != nil {
		return err
	}
	if err := kubectlGPU(ctx, cluster, "topo", cluster.NodeName); err != nil {
		return err
	}
	if err := remove(ctx, cluster, "notebook-0", "notebook-1", "four-numa"); err != nil {
		return err
	}
	if err := cluster.WaitReady(ctx, namespace, "whole-node"); err != nil {
		return err
	}
	say("the others have ended, and whole-node has started by itself")
	if err := kubectlGPU(ctx, cluster, "topo", cluster.NodeName); err != nil {
		return err
	}
	if err := remove(ctx, cluster, "whole-node"); err != nil {
		return err
	}
	return otherDrivers(ctx, cluster)
}

// otherDrivers shows GPUs together with NICs and CPUs, of which a loader has the first.
func otherDrivers(ctx context.Context, cluster *harness.Cluster) error {
	say("starting a driver of NICs and one of CPUs")
	if err := cluster.StartSecondDriver(ctx, "test/e2e/seconddriver/dgx-h100.yaml"); err != nil {
		return err
	}
	if err := apply(ctx, cluster, "demo/topology/classes.yaml"); err != nil {
		return err
	}
	for _, name := range []string{"loader", "gpu-nic", "gpu-cpu"} {
		if err := start(ctx, cluster, name, name); err != nil {
			return err
		}
	}
	say("gpu-nic has a NIC of its GPU's PCIe root, and gpu-cpu has CPUs of its GPU's NUMA node")
	return printEnvironment(ctx, cluster, "gpu-nic")
}

// printEnvironment prints the variables of a container about the place of its GPUs.
func printEnvironment(ctx context.Context, cluster *harness.Cluster, pod string) error {
	sight, err := cluster.Sight(ctx, namespace, pod, "main")
	if err != nil {
		return err
	}
	fmt.Printf("\nIn the environment of %s:\n", pod)
	for _, name := range slices.Sorted(maps.Keys(sight.Env)) {
		if strings.HasPrefix(name, "GPU_") {
			fmt.Printf("  %s=%s\n", name, sight.Env[name])
		}
	}
	return nil
}

// start applies a manifest of demo/topology and waits for its pods.
func start(ctx context.Context, cluster *harness.Cluster, name string, pods ...string) error {
	if err := apply(ctx, cluster, "demo/topology/"+name+".yaml"); err != nil {
		return err
	}
	return cluster.WaitReady(ctx, namespace, pods...)
}

// waits applies the manifest of a pod that does not fit and prints the reason.
func waits(ctx context.Context, cluster *harness.Cluster, name string) error {
	if err := apply(ctx, cluster, "demo/topology/"+name+".yaml"); err != nil {
		return err
	}
	reason, err := cluster.Unschedulable(ctx, namespace, name)
	if err == nil {
		say("%s waits: %s", name, reason)
	}
	return err
}
