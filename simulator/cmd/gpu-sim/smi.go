// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
	"github.com/gpu-dra/gpu-dra-driver/simulator/smisim"
)

// smi is nvidia-smi. As the real one it prints errors to its standard output.
func (t *tool) smi() *cobra.Command {
	return &cobra.Command{
		Use:                nvmlsim.SMIName + " [options]",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			program, err := t.smiProgram()
			if err == nil {
				err = program.Run(args, c.OutOrStdout())
			}
			if err != nil {
				_, _ = fmt.Fprintln(c.OutOrStdout(), err)
				return exitError{err, smisim.ExitStatus(err)}
			}
			return nil
		},
	}
}

// smiProgram returns nvidia-smi of the node, or of the container if it has no node.
func (t *tool) smiProgram() (*smisim.Program, error) {
	s, err := t.open()
	if err == nil {
		return smisim.OnNode(s)
	}
	if t.state != "" || !errors.Is(err, simerr.ErrNotFound) {
		return nil, err
	}
	path, err := self()
	if err != nil {
		return nil, err
	}
	return smisim.InContainer(path)
}
