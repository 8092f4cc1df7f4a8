// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// suggestFlag adds the nearest flag to the error of an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := fleet.Nearest(unknown.GetSpecifiedName(), names); len(near) > 0 && len(unknown.GetSpecifiedName()) > 1 {
		return fmt.Errorf("%w: did you mean --%s?", err, near[0])
	}
	return fmt.Errorf("%w: %s --help lists the flags", err, cmd.CommandPath())
}
