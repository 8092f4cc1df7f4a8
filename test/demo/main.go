// Command demo runs demo/whole-gpu on a real cluster with simulated hardware
// and prints who got what.
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

func main() {
	bin := flag.String("bin", ".build/bin", "folder with the binaries that `make build` makes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string) error {
	say("bringing up the cluster %q", clusterName)
	cluster, err := harness.Up(ctx, bin, clusterName)
	if err != nil {
		return err
	}
	say("installing the DeviceClass and the agent's rights (deployments/manifests)")
	if err := cluster.Install(ctx); err != nil {
		return err
	}
	say("starting the agent on a simulated %s", model)
	agent := cluster.NewAgent(model)
	if err := agent.Start(ctx); err != nil {
		return err
	}
	say("applying demo/whole-gpu")
	if err := cluster.DeleteNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := cluster.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	if _, err := cluster.Kubectl(ctx, "apply", "-n", namespace, "-f", "demo/whole-gpu"); err != nil {
		return err
	}
	say("waiting for the pods")
	if err := cluster.WaitReady(ctx, namespace, "one-gpu", "two-pods-a", "two-pods-b", "shared-claim", "by-memory", "first-available"); err != nil {
		return err
	}
	reason, err := cluster.Unschedulable(ctx, namespace, "nine-gpus")
	if err != nil {
		return err
	}
	rows, err := cluster.Report(ctx, namespace)
	if err != nil {
		return err
	}
	fmt.Println()
	if err := harness.WriteTable(os.Stdout, rows); err != nil {
		return err
	}
	fmt.Printf("\nnine-gpus waits, and the scheduler says why:\n  %s\n", reason)
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
  kubectl logs -n %s one-gpu
  kubectl delete pod -n %s by-memory        # its GPU is free again
  %s show --state %s
  less %s

To take it down and leave nothing behind:

  make cluster-down CLUSTER=%s
`, c.Kubeconfig, c.BinDir, namespace, namespace, namespace, sim, a.SimDir(), a.LogFile(), c.Name)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\n==> "+format+"\n", args...)
}
