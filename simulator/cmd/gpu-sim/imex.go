// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/imexsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// imex is nvidia-imex, which stays in the foreground as with DAEMONIZE=0.
func (t *tool) imex() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:    nvmlsim.IMEXName + " [-c FILE]",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := imexsim.ReadConfig(config)
			if err != nil {
				return err
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGUSR1)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return imexsim.Run(ctx, settings, reload, c.ErrOrStderr())
		},
	}
	c.Flags().StringVarP(&config, "config", "c", imexsim.DefaultConfig, "configuration file")
	return c
}

// imexControl is nvidia-imex-ctl.
func (t *tool) imexControl() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:    nvmlsim.IMEXControlName + " [-c FILE] -q",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := imexsim.ReadConfig(config)
			if err != nil {
				return err
			}
			answer, err := imexsim.Query(c.Context(), settings)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), answer)
			return err
		},
	}
	c.Flags().StringVarP(&config, "config", "c", imexsim.DefaultConfig, "configuration file")
	c.Flags().BoolP("query", "q", false, "print the state of the local daemon; it always does")
	return c
}
