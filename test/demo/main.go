// SPDX-License-Identifier: Apache-2.0

// Command demo runs the manifests of demo/ on a real cluster with simulated
// hardware. It ends with the output of kubectl gpu.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const namespace = "demo"

func main() {
	bin := flag.String("bin", ".build/bin", "folder with the binaries that `make build` makes")
	name := flag.String("story", "whole-gpu", "which folder of demo/ to run: "+storyNames())
	clusterName := flag.String("cluster", "demo", "name of the cluster to bring up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *clusterName, *name); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, clusterName, name string) error {
	chosen, ok := stories()[name]
	if !ok {
		return fmt.Errorf("-story %s: want one of %s", name, storyNames())
	}
	say("bringing up the cluster %q", clusterName)
	cluster, err := harness.Up(ctx, bin, clusterName)
	if err != nil {
		return err
	}
	say("loading the images")
	if err := cluster.LoadImages(ctx); err != nil {
		return err
	}
	for {
		agent, err := perform(ctx, cluster, chosen)
		if err != nil {
			return err
		}
		if chosen.then == "" {
			explore(cluster, agent)
			return nil
		}
		chosen = stories()[chosen.then]
	}
}

// perform runs a story and returns its agent, which goes on running.
func perform(ctx context.Context, cluster *harness.Cluster, chosen story) (*harness.Agent, error) {
	if chosen.page != nil {
		return practise(ctx, cluster, *chosen.page)
	}
	for _, ns := range append(chosen.namespaces, namespace) {
		if err := cluster.DeleteNamespace(ctx, ns); err != nil {
			return nil, err
		}
	}
	agent := cluster.NewAgent(chosen.model, chosen.flags...)
	if chosen.driver {
		say("starting the simulated driver")
		if err := agent.StartDriver(ctx); err != nil {
			return nil, err
		}
	}
	say("installing the Helm chart, for a simulated %s", chosen.model)
	if err := agent.Start(ctx); err != nil {
		return nil, err
	}
	for _, ns := range append(chosen.namespaces, namespace) {
		if err := cluster.CreateNamespace(ctx, ns); err != nil {
			return nil, err
		}
	}
	return agent, chosen.tell(ctx, cluster)
}
