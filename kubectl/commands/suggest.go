// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkNames returns an error for the first name that is not among all. It suggests the
// nearest one.
func checkNames(kind string, names, all []string, otherwise string) error {
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		if near := fleet.Nearest(name, all); len(near) > 0 {
			return fmt.Errorf("%s %s: %w: did you mean %s?", kind, name, gpu.ErrNotFound, near[0])
		}
		return fmt.Errorf("%s %s: %w: %s", kind, name, gpu.ErrNotFound, otherwise)
	}
	return nil
}

// onlyCommands refuses the arguments of the root command, and suggests commands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := fleet.Nearest(args[0], names); len(near) > 0 {
		return fmt.Errorf("unknown command %q: did you mean kubectl gpu %s?", args[0], near[0])
	}
	return fmt.Errorf("unknown command %q: kubectl gpu --help lists the commands", args[0])
}

// exactly returns a check for one argument. what describes it.
func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%s: %w: want %s, got %d arguments; see %s --help", cmd.CommandPath(), gpu.ErrInvalid, what, len(args), cmd.CommandPath())
	}
}
