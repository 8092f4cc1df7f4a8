// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkNames returns an error for the first name that is not among all. It suggests the
// nearest one.
func checkNames(kind string, names, all []string, otherwise string) error {
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		if near := nearest(name, all); near != "" {
			return fmt.Errorf("%s %s: %w: did you mean %s?", kind, name, gpu.ErrNotFound, near)
		}
		return fmt.Errorf("%s %s: %w: %s", kind, name, gpu.ErrNotFound, otherwise)
	}
	return nil
}

// nearest returns the name with the least edit distance. It returns "" if more than a third of
// the letters differ.
func nearest(name string, all []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, other := range all {
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d < least {
			best, least = other, d
		}
	}
	return best
}

// distance returns the number of letters to insert, remove or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
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
	if near := nearest(args[0], names); near != "" {
		return fmt.Errorf("unknown command %q: did you mean kubectl gpu %s?", args[0], near)
	}
	return fmt.Errorf("unknown command %q: kubectl gpu --help lists the commands", args[0])
}
