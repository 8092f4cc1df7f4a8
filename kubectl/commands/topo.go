// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newTopo() *cobra.Command {
	return &cobra.Command{
		Use: "topo NODE",
		Example: `  # The paths between the GPUs of a node
  kubectl gpu topo node-1`,
		Short: "The paths between the GPUs of a node, their NUMA nodes and PCIe roots, and their claims",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.readWithSlices(cmd.Context())
			if err != nil {
				return err
			}
			nodes, err := o.selectedNodes(v, args)
			if err != nil {
				return err
			}
			if len(nodes[0].GPUs) == 0 {
				return fmt.Errorf("node %s: %w: it publishes no devices of %s", args[0], gpu.ErrNotFound, o.driver)
			}
			if err := o.addWiring(cmd.Context(), v, nodes[0]); err != nil {
				fmt.Fprintf(o.ErrOut, "node %s: links are not counted: %v\n", nodes[0].Name, err) //nolint:errcheck // there is no other place to say so
			}
			all := rows.Topologies(nodes[0])
			return printList(o, "TopologyList", all, rows.TopologyTable(all), "")
		},
	}
}

// addWiring adds what the agent of the node knows of its GPUs' connections: the API server
// has no room for it on every node.
func (o *options) addWiring(ctx context.Context, v *view, node fleet.Node) error {
	answers, err := askAgents[agentv1.Node](ctx, o, v, []string{node.Name}, agentv1.PathNode)
	if err != nil {
		return err
	}
	a := answers[node.Name]
	if a.Err != nil || a.Value == nil {
		return a.Err
	}
	for _, facts := range a.Value.GPUs {
		address, err := gpu.ParsePCIAddress(facts.Address)
		if err != nil || facts.Links == nil {
			continue // an agent of an earlier release
		}
		i := slices.IndexFunc(node.GPUs, func(g fleet.GPU) bool { return g.Name == address.DeviceName() })
		if i < 0 {
			continue
		}
		w := fleet.Wiring{Links: map[string]int{}, PCIeSwitch: facts.PCIeSwitch}
		for peer, links := range facts.Links {
			if address, err := gpu.ParsePCIAddress(peer); err == nil {
				w.Links[address.DeviceName()] = links
			}
		}
		node.GPUs[i].Wiring = &w
	}
	return nil
}
