// Command demo runs the manifests of demo/ on a real cluster with simulated
// hardware and prints who got what.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

const (
	namespace   = "demo"
	clusterName = "demo"
)

// story is a folder of demo/ and what is done with it.
type story struct {
	// model of the simulated node.
	model string
	// flags of the agent beyond the usual ones.
	flags []string
	// namespaces that its manifests make, beyond the usual one.
	namespaces []string
	tell       func(context.Context, *harness.Cluster) error
}

func stories() map[string]story {
	return map[string]story{
		"whole-gpu": {model: "dgx-h100", tell: wholeGPU},
		"mig":       {model: "dgx-h100", flags: []string{"--offer=share,mig"}, tell: mig},
		"fractions": {
			model:      "dgx-a100",
			flags:      []string{"--offer=share,mig,timeslice", "--mig-allow-reset"},
			namespaces: []string{"vision", "language"},
			tell:       fractions,
		},
	}
}

// storyNames for messages.
func storyNames() string { return strings.Join(slices.Sorted(maps.Keys(stories())), ", ") }

func main() {
	bin := flag.String("bin", ".build/bin", "folder with the binaries that `make build` makes")
	name := flag.String("story", "whole-gpu", "which folder of demo/ to run: "+storyNames())
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *name); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, name string) error {
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
	for _, ns := range append(chosen.namespaces, namespace) {
		if err := cluster.DeleteNamespace(ctx, ns); err != nil {
			return err
		}
	}
	say("installing the Helm chart, for a simulated %s", chosen.model)
	agent := cluster.NewAgent(chosen.model, chosen.flags...)
	if err := agent.Start(ctx); err != nil {
		return err
	}
	if err := cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := chosen.tell(ctx, cluster); err != nil {
		return err
	}
	explore(cluster, agent)
	return nil
}
