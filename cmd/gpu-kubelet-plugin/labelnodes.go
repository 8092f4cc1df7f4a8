// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent"
)

// labelNodes returns the command that keeps labels of nodes. It runs once in a cluster, and
// not on the nodes with GPUs.
func labelNodes() *cobra.Command {
	c := agent.Config{Names: names()}
	cmd := &cobra.Command{
		Use:   "label-nodes [flags]",
		Short: "Keep labels of nodes that describe their GPUs",
		Long: "label-nodes sets nvidia.com/gpu.product, .memory, .count and .clique on the nodes whose\n" +
			"GPUs are published. It leaves nodes with GPU feature discovery, and labels of others,\n" +
			"unchanged. Run it once in a cluster.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return agent.LabelNodes(cmd.Context(), &c) },
	}
	cmd.Flags().StringVar(&c.DriverName, "driver-name", v1alpha1.DriverName, "`NAME` of the driver in ResourceSlices")
	cmd.Flags().StringVar(&c.Kubeconfig, "kubeconfig", "", "`FILE` with the address and credentials of the API server (default: the service account of the pod)")
	// The help function of the parent would show the flags of the parent.
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", cmd.Long, cmd.UsageString())
	})
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n\nFlags:\n%s", cmd.UseLine(), cmd.Flags().FlagUsages())
		return err
	})
	return cmd
}
