// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"log"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newUI() *cobra.Command {
	var port uint16
	var refresh time.Duration
	cmd := &cobra.Command{
		Use: "ui",
		Example: `  # Pages on a port of your choice
  kubectl gpu ui --port 8080`,
		Short: "Pages for a browser of this machine: the fleet, nodes, GPUs, claims, and why pods wait",
		Long: "Serves pages on 127.0.0.1 until Ctrl-C, and prints their address. The pages change nothing and show what\n" +
			"your user may read. The address has a token: do not share it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if refresh < time.Second {
				return fmt.Errorf("--refresh %s: %w: want at least 1s", refresh, gpu.ErrInvalid)
			}
			r, err := o.dial()
			if err != nil {
				return err
			}
			site, err := pages.Listen(cmd.Context(), port, uiSource{r, o}, refresh)
			if err != nil {
				return err
			}
			fmt.Fprintln(o.Out, "Open this address in a browser of this machine. Ctrl-C ends the pages.") //nolint:errcheck // the address below fails too
			if _, err := fmt.Fprintln(o.Out, site.Address()); err != nil {
				return err
			}
			return site.Serve(cmd.Context(), log.New(o.ErrOut, "", log.LstdFlags))
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "port of the pages on 127.0.0.1; any free one if it is 0")
	cmd.Flags().DurationVar(&refresh, "refresh", 5*time.Second, "time between refreshes of a page")
	return cmd
}
