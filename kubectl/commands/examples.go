// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"

	"github.com/spf13/cobra"
)

// addExamples adds an example to the help of the command and of its subcommands without one.
func addExamples(root *cobra.Command) {
	all := examples()
	for _, cmd := range append(root.Commands(), root) {
		cmd.Example = cmp.Or(cmd.Example, all[cmd.Name()])
	}
}

// examples returns the examples by the name of the command.
func examples() map[string]string {
	return map[string]string{
		"kubectl-gpu": `  # Why the pod train waits for its GPU
  kubectl gpu explain train`,
		"get": `  # The GPUs of two nodes
  kubectl gpu get node-1 node-2

  # The GPUs that are not ok
  kubectl gpu get -o jsonpath='{range .items[?(@.health.state!="ok")]}{.node}/{.name}{"\n"}{end}'`,
		"who": `  # All holders on a node, with the memory that they use now
  kubectl gpu who node-1 -A --used`,
		"free": `  # Whole GPUs, and shares with 20Gi each
  kubectl gpu free gpu.nvidia.com mps.nvidia.com --memory 20Gi`,
		"usage": `  # The namespaces, those with the fewest GPUs first
  kubectl gpu usage --sort-by gpus`,
		"explain": `  # Why a pod waits, with the devices of the ten nearest nodes
  kubectl gpu explain train -n team-a --nodes 10

  # Why a claim without a pod waits
  kubectl gpu explain claim/shared -n team-a`,
		"topo": `  # The paths between the GPUs of a node
  kubectl gpu topo node-1`,
		"plan": `  # Whether the pods of a manifest fit now, and on twenty nodes of a model
  kubectl gpu plan -f training.yaml
  kubectl gpu plan -f training.yaml --nodes 20 --model dgx-h100 --offer share`,
		"doctor": `  # The findings about one node, without a finding that is meant to be so
  kubectl gpu doctor node-1 --ignore swap-on`,
		"sysdump": `  # An archive for a bug report
  kubectl gpu sysdump --to dump.tar.gz`,
		"ui": `  # Pages on a port of your choice
  kubectl gpu ui --port 8080`,
	}
}
