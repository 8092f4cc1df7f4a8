// Command demo runs the manifests of demo/ on a real cluster with simulated
// hardware and prints who got what.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

const (
	namespace   = "demo"
	clusterName = "demo"
	model       = "dgx-h100"
)

// story is a folder of demo/ and what is done with it.
type story struct {
	// flags of the agent beyond the usual ones.
	flags []string
	tell  func(context.Context, *harness.Cluster) error
}

func stories() map[string]story {
	return map[string]story{
		"whole-gpu": {tell: wholeGPU},
		"mig":       {flags: []string{"--offer=share,mig"}, tell: mig},
	}
}

func main() {
	bin := flag.String("bin", ".build/bin", "folder with the binaries that `make build` makes")
	name := flag.String("story", "whole-gpu", "which folder of demo/ to run: whole-gpu or mig")
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
		return fmt.Errorf("-story %s: want whole-gpu or mig", name)
	}
	say("bringing up the cluster %q", clusterName)
	cluster, err := harness.Up(ctx, bin, clusterName)
	if err != nil {
		return err
	}
	say("installing the DeviceClasses and the agent's rights (deployments/manifests)")
	if err := cluster.Install(ctx); err != nil {
		return err
	}
	if err := cluster.DeleteNamespace(ctx, namespace); err != nil {
		return err
	}
	say("starting the agent on a simulated %s", model)
	agent := cluster.NewAgent(model, chosen.flags...)
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
