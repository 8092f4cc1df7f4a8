// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// complete returns a function that completes arguments of a command by names in the cluster. A
// shell shows nothing if the cluster cannot be read.
func (o *options) complete(most int, names func(*view) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		quiet := *o
		quiet.ErrOut = io.Discard
		v, err := quiet.read(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveError
		}
		return slices.DeleteFunc(names(v), func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
	}
}

func nodeNames(v *view) []string {
	var names []string
	for _, node := range v.Nodes() {
		names = append(names, node.Name)
	}
	return names
}

func classNames(v *view) []string {
	var names []string
	for _, class := range v.Objects.Classes {
		names = append(names, class.Name)
	}
	return names
}

// subjectNames returns the pods with claims of the namespace, and its claims.
func subjectNames(v *view) []string {
	var names []string
	for _, pod := range v.Objects.Pods {
		if pod.Namespace == v.namespace && v.HasClaims(pod) {
			names = append(names, pod.Name)
		}
	}
	for _, claim := range v.Objects.Claims {
		if claim.Namespace == v.namespace {
			names = append(names, "claim/"+claim.Name)
		}
	}
	return names
}
