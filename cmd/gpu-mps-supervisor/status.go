// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/status"
)

func statusCommand() *cobra.Command {
	socket, format := mpsv1.DefaultSocket, "text"
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show the daemons that a supervisor runs",
		Long:  "status lists the daemons of this node's supervisor, with their servers and clients.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if value, ok := os.LookupEnv(twins.Name("socket")); ok && !cmd.Flags().Changed("socket") {
				socket = value
			}
			write, ok := map[string]func(io.Writer, []gpu.MPSStatus) error{"text": status.WriteText, "json": status.WriteJSON}[format]
			if !ok {
				return program.Invalid("output", format, "want text or json")
			}
			daemons, err := client.New(socket).MPSDaemons(cmd.Context())
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), daemons)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socket, "`FILE` of the supervisor's unix socket")
	cmd.Flags().StringVarP(&format, "output", "o", format, "`FORMAT`: text or json")
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
