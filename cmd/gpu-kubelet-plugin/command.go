// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent"
)

const long = `gpu-kubelet-plugin publishes the GPUs of this node to Kubernetes (ResourceSlices
of the DRA driver gpu.nvidia.com) and prepares them for the pods that claim them.
It runs once on every node with GPUs, next to the kubelet.

Every flag can be set by an environment variable as well: GPU_DRA_ and its name in
capitals, for example GPU_DRA_NODE_NAME for --node-name. A flag overrides the
environment, and the environment the default.

Examples:
  # Print the ResourceSlices of this node. This needs no cluster.
  gpu-kubelet-plugin --print-slices

  # On a node, with the service account of the pod.
  gpu-kubelet-plugin --node-name=$NODE_NAME --pod-uid=$POD_UID

  # Print the ResourceSlices of a simulated DGX H100. This needs no GPU and no root.
  gpu-sim create --state=/tmp/node --model=dgx-h100
  gpu-kubelet-plugin --driver-root=/tmp/node --machine-root=/tmp/node --print-slices

  # By hand, against any cluster, with the same simulated GPUs.
  gpu-kubelet-plugin --driver-root=/tmp/node --machine-root=/tmp/node --kubeconfig=$HOME/.kube/config`

// newCommand returns the program. ending is called when the agent begins to end.
func newCommand(ending func()) *cobra.Command {
	o := options{Config: agent.Config{OnEnd: ending}}
	cmd := program.Program{
		Name:        "gpu-kubelet-plugin",
		Short:       "Publish this node's GPUs to Kubernetes and prepare them for pods",
		Long:        long,
		Flags:       o.flags(),
		Environment: twins,
		Logging:     o.logging,
		Complete:    o.complete,
		Run: func(cmd *cobra.Command) error {
			if o.printSlices {
				return agent.PrintSlices(cmd.Context(), &o.Config, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return agent.Run(cmd.Context(), &o.Config)
		},
	}.Command()
	return cmd
}
