// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/course"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// story is a folder of demo/ and its steps.
type story struct {
	// model of the simulated node, by name or file.
	model string
	// flags of the agent beyond the usual ones.
	flags []string
	// namespaces that its manifests make, beyond the usual one.
	namespaces []string
	// driver says that containers can use GPUs without MPS: the simulated driver runs.
	driver bool
	tell   func(context.Context, *harness.Cluster) error
	// page has exercises, whose commands are the steps. It determines the node instead.
	page *course.Page
	// then is the story that follows on other hardware, or "".
	then string
}

// stories by name.
func stories() map[string]story {
	all := map[string]story{
		"whole-gpu": {model: "dgx-h100", tell: wholeGPU},
		"mig":       {model: "dgx-h100", flags: []string{"--offer=share,mig"}, tell: mig},
		"fractions": {
			model:      "dgx-a100",
			flags:      []string{"--offer=share,mig,timeslice", "--mig-allow-reset"},
			namespaces: []string{"vision", "language"},
			tell:       fractions,
		},
		"held":            {model: "dgx-h100-r615", namespaces: []string{heldNamespace}, driver: true, tell: held, then: "held-older"},
		"held-older":      {model: "dgx-h100", namespaces: []string{heldNamespace}, driver: true, tell: heldOlder},
		"topology":        {model: "dgx1-v100", tell: quads, then: "topology-numa"},
		"topology-numa":   {model: "dgx-a100", tell: sockets, then: "topology-others"},
		"topology-others": {model: "dgx-h100", tell: neighbours},
		"fleet": {
			model:      "demo/fleet/ten-a100.yaml",
			flags:      []string{"--offer=share,timeslice", "--timeslice-slots=12"},
			namespaces: []string{"training", "serving", "notebooks"},
			tell:       fleet,
		},
	}
	maps.Copy(all, exercises())
	return all
}

// storyNames for messages.
func storyNames() string { return strings.Join(slices.Sorted(maps.Keys(stories())), ", ") }

func wholeGPU(ctx context.Context, cluster *harness.Cluster) error {
	if err := apply(ctx, cluster, "demo/whole-gpu"); err != nil {
		return err
	}
	if err := cluster.WaitReady(ctx, namespace, "one-gpu", "two-pods-a", "two-pods-b", "shared-claim", "by-memory", "gpu-large", "first-available"); err != nil {
		return err
	}
	if _, err := cluster.Unschedulable(ctx, namespace, "nine-gpus"); err != nil {
		return err
	}
	if err := show(ctx, cluster, namespace); err != nil {
		return err
	}
	return kubectlGPU(ctx, cluster, "explain", "nine-gpus", "--namespace", namespace)
}

func mig(ctx context.Context, cluster *harness.Cluster) error {
	if err := wholeWhenFree(ctx, cluster); err != nil {
		return err
	}
	for _, file := range []string{"seven-1g", "mix", "first-available", "extended-resource"} {
		if err := apply(ctx, cluster, "demo/mig/"+file+".yaml"); err != nil {
			return err
		}
	}
	if err := cluster.WaitReady(ctx, namespace, "seven-0", "seven-1", "seven-2", "seven-3", "seven-4", "seven-5", "seven-6", "mix", "first-available", "extended-resource"); err != nil {
		return err
	}
	return show(ctx, cluster, namespace)
}

// wholeWhenFree shows that a pod which wants whole GPUs waits while one is cut
// and starts by itself.
func wholeWhenFree(ctx context.Context, cluster *harness.Cluster) error {
	if err := apply(ctx, cluster, "demo/mig/cut.yaml"); err != nil {
		return err
	}
	if err := cluster.WaitReady(ctx, namespace, "cut"); err != nil {
		return err
	}
	if err := apply(ctx, cluster, "demo/mig/eight-gpus.yaml"); err != nil {
		return err
	}
	reason, err := cluster.Unschedulable(ctx, namespace, "eight-gpus")
	if err != nil {
		return err
	}
	say("eight-gpus waits while a GPU is cut: %s", reason)
	if err := remove(ctx, cluster, "cut"); err != nil {
		return err
	}
	if err := cluster.WaitReady(ctx, namespace, "eight-gpus"); err != nil {
		return err
	}
	say("cut has ended, and eight-gpus has started by itself")
	return remove(ctx, cluster, "eight-gpus")
}

func fractions(ctx context.Context, cluster *harness.Cluster) error {
	// Those with namespaces of their own say so themselves.
	say("applying demo/fractions/inference.yaml")
	if err := cluster.ApplyInTurn(ctx, "", "demo/fractions/inference.yaml"); err != nil {
		return err
	}
	for _, ns := range []string{"vision", "language"} {
		if err := cluster.WaitReady(ctx, ns, "server-0", "server-1"); err != nil {
			return err
		}
	}
	for _, file := range []string{"unequal", "two-pods-one-claim", "mig-shares", "gpu-shared", "notebooks"} {
		say("applying demo/fractions/%s.yaml", file)
		if err := cluster.ApplyInTurn(ctx, namespace, "demo/fractions/"+file+".yaml"); err != nil {
			return err
		}
	}
	if err := cluster.WaitReady(ctx, namespace, "large", "small-0", "small-1", "small-2", "together-0", "together-1", "half-0", "half-1", "shared-0", "shared-1"); err != nil {
		return err
	}
	if err := fifthNotebook(ctx, cluster); err != nil {
		return err
	}
	return show(ctx, cluster, "vision", "language", namespace)
}

// fifthNotebook shows that four notebooks share a GPU by time slices. The fifth
// starts when one of them ends.
func fifthNotebook(ctx context.Context, cluster *harness.Cluster) error {
	running, waiting, err := cluster.Started(ctx, namespace, 4, "notebook-0", "notebook-1", "notebook-2", "notebook-3", "notebook-4")
	if err != nil {
		return err
	}
	reason, err := cluster.Unschedulable(ctx, namespace, waiting[0])
	if err != nil {
		return err
	}
	say("%s waits, as the GPU has four slots: %s", waiting[0], reason)
	if err := remove(ctx, cluster, running[0]); err != nil {
		return err
	}
	if err := cluster.WaitReady(ctx, namespace, waiting[0]); err != nil {
		return err
	}
	say("%s has ended, and %s has started by itself", running[0], waiting[0])
	return nil
}

func apply(ctx context.Context, cluster *harness.Cluster, path string) error {
	say("applying %s", path)
	_, err := cluster.Kubectl(ctx, "apply", "-n", namespace, "-f", path)
	return err
}

func remove(ctx context.Context, cluster *harness.Cluster, pods ...string) error {
	say("deleting %s", strings.Join(pods, ", "))
	_, err := cluster.Kubectl(ctx, append([]string{"delete", "pod", "-n", namespace}, pods...)...)
	return err
}

// show prints the GPUs of the cluster, and the holders of devices in the namespaces.
func show(ctx context.Context, cluster *harness.Cluster, namespaces ...string) error {
	if err := kubectlGPU(ctx, cluster, "get"); err != nil {
		return err
	}
	for _, ns := range namespaces {
		if err := kubectlGPU(ctx, cluster, "who", "--namespace", ns); err != nil {
			return err
		}
	}
	return nil
}

// kubectlGPU prints a command of kubectl gpu and its output.
func kubectlGPU(ctx context.Context, cluster *harness.Cluster, args ...string) error {
	out, err := cluster.GPU(ctx, args...)
	// explain has this exit status for a pod that waits.
	const waits = 2
	exit := (*exec.ExitError)(nil)
	if ok := args[0] == "explain" && errors.As(err, &exit) && exit.ExitCode() == waits; err != nil && !ok {
		return err
	}
	fmt.Printf("\n$ kubectl gpu %s\n%s", strings.Join(args, " "), out)
	return nil
}

func explore(c *harness.Cluster, a *harness.Agent) {
	sim := c.SimProgram("gpu-sim")
	fmt.Fprintf(os.Stderr, `
The cluster goes on running. To explore it:

  export KUBECONFIG=%s PATH=%s:%s:$PATH
  kubectl gpu; kubectl gpu who -A            # docs/user/look.md
  kubectl get pods,resourceclaims -A
  kubectl get resourceslices -o yaml
  kubectl logs -n NAMESPACE POD              # what the container sees
  kubectl delete pod -n NAMESPACE POD        # what it held is free again
  %s show --state %s
  kubectl logs -n %s -l app.kubernetes.io/component=agent

To take it down and leave nothing behind:

  .build/bin/cluster down --name %s
`, c.Kubeconfig, c.Bin, c.BinDir, sim, a.SimDir(), harness.Namespace, c.Name)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\n==> "+format+"\n", args...)
}
