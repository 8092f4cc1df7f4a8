// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/spf13/cobra"
)

func (o *options) pack() *cobra.Command {
	return &cobra.Command{
		Use:   "pack DIR",
		Short: "Write all programs of a cluster into a folder that another machine can use",
		Long: `Write all programs of a cluster into a folder that another machine can use. There:

  PATH=DIR/bin:$PATH cluster up --bin DIR/bin

The machine needs Linux, root, a shell and a C library that is not older than this machine's.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, source, err := o.layout()
			if err != nil {
				return err
			}
			release, err := build.FindRelease(o.kubernetes)
			if err != nil {
				return err
			}
			return cluster.Pack(cmd.Context(), l, cluster.Options{Source: source, Release: release, ContainerRuntime: build.Containerd, Say: o.say}, args[0])
		},
	}
}
