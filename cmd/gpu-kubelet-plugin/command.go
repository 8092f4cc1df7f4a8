// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent"
)

const long = `gpu-kubelet-plugin publishes the GPUs of this node to Kubernetes (ResourceSlices
of the DRA driver gpu.nvidia.com) and prepares them for the pods that claim them.
It runs once on every node with GPUs, next to the kubelet.

Every flag can be set by an environment variable as well: GPU_DRA_ and its name in
capitals, for example GPU_DRA_NODE_NAME for --node-name. A flag overrides the
environment, and the environment the default.

Examples:
  # Print the ResourceSlices of a DGX H100. This needs no GPU, cluster or root, but a
  # program built with the tag sim.
  gpu-kubelet-plugin --hardware=sim:dgx-h100 --print-slices

  # On a node, with the service account of the pod.
  gpu-kubelet-plugin --node-name=$NODE_NAME --pod-uid=$POD_UID

  # By hand, against any cluster, with simulated GPUs.
  gpu-kubelet-plugin --hardware=sim:dgx-h100 --sim-state=/run/gpu-sim --kubeconfig=$HOME/.kube/config`

// helpColumns is the width of --help.
const helpColumns = 100

// newCommand returns the program. ending is called when the agent begins to end;
// simulator opens simulated GPUs and is nil in production programs.
func newCommand(ending func(), simulator agent.Simulator) *cobra.Command {
	o := options{Config: agent.Config{Names: names(), OnEnd: ending, Simulator: simulator}}
	sets := o.flags()
	cmd := &cobra.Command{
		Use:     "gpu-kubelet-plugin [flags]",
		Short:   "Publish this node's GPUs to Kubernetes and prepare them for pods",
		Long:    long,
		Args:    cobra.NoArgs,
		Version: version.Get().GitVersion,
		// main prints the error, once and without the usage.
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := twins.Apply(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			defer klog.Flush()
			if o.printSlices {
				return agent.PrintSlices(cmd.Context(), &o.Config, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return agent.Run(cmd.Context(), &o.Config)
		},
	}
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cliflag.SetUsageAndHelpFunc(cmd, sets, helpColumns)
	return cmd
}
