// Command demo runs the manifests of demo/ on a real cluster with simulated
// hardware and prints who got what.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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

func explore(c *harness.Cluster, a *harness.Agent) {
	sim := filepath.Join(c.Bin, "gpu-sim")
	fmt.Printf(`
The cluster goes on running. To explore it:

  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get pods,resourceclaims -n %s
  kubectl get resourceslices -o yaml
  kubectl logs -n %s POD                     # what the container sees
  kubectl delete pod -n %s POD               # what it held is free again
  %s show --state %s
  less %s

To take it down and leave nothing behind:

  make cluster-down CLUSTER=%s
`, c.Kubeconfig, c.BinDir, namespace, namespace, namespace, sim, a.SimDir(), a.LogFile(), c.Name)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\n==> "+format+"\n", args...)
}
