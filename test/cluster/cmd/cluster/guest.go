// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
	"github.com/spf13/cobra"
)

func (o *options) start() *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "start NAME -- PROGRAM ARG...",
		Short: "Start a program on the node, such as a driver's agent; it ends with the cluster",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			if log == "" {
				log = filepath.Join(l.LogsDir(), args[0]+".log")
			}
			return cluster.StartGuest(l, args[0], log, args[1:])
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "file for the program's output (default: NAME.log among the cluster's logs)")
	return cmd
}

func (o *options) stop() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "stop NAME",
		Short: "End a program that was started with start",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, _, err := o.forRoot()
			if err != nil {
				return err
			}
			return cluster.StopGuest(cmd.Context(), l, args[0], now)
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill it, as a crash does")
	return cmd
}
