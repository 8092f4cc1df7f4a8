// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cudasim"
)

// driver is the kernel driver of processes in containers that use no MPS.
func (t *tool) driver() *cobra.Command {
	return &cobra.Command{
		Use:   "driver",
		Short: "Serve CUDA processes in containers that use no MPS, until a signal",
		Long: "Serve CUDA processes in containers that use no MPS, until a signal.\n\n" +
			"It listens on run/nvidia-persistenced/socket in the root file system of the node.\n" +
			"An agent that starts later mounts the socket into containers. A process has the\n" +
			"devices in its /dev, and its memory counts in its cgroup of version 2.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return cudasim.Run(ctx, s, cudasim.Options{Log: c.ErrOrStderr()}, func() { c.Println("serving", s.DriverSocket()) })
		},
	}
}
