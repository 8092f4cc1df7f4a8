// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/picture"
)

// topologyItem is a GPU and its paths to the GPUs of its node, in JSON and YAML.
type topologyItem struct {
	Name         string `json:"name"`
	NVLinkDomain string `json:"nvlinkDomain,omitempty"`
	NUMANode     string `json:"numaNode,omitempty"`
	PCIeRoot     string `json:"pcieRoot,omitempty"`
	// Paths are in the order of the GPUs.
	Paths []fleet.Path `json:"paths"`
	// Claims are the holders of the GPU, as namespace/name.
	Claims []string `json:"claims,omitempty"`
}

func (o *options) newTopo() *cobra.Command {
	return &cobra.Command{
		Use:   "topo NODE",
		Short: "The paths between the GPUs of a node, their NUMA nodes and PCIe roots, and their claims",
		Long:  "With --output svg, a picture of the GPUs, their NVLink domains, PCIe roots and NUMA nodes, the NICs and other\n" + "devices near them, and the claims of each.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			nodes := v.nodesNamed(args)
			if len(nodes) == 0 {
				return fmt.Errorf("node %s: %w: it publishes no devices of %s", args[0], gpu.ErrNotFound, o.driver)
			}
			if o.output == "svg" {
				return markup.Render(o.Out, picture.Draw(v.pictureOf(nodes[0]), false))
			}
			return o.printTopology(topologyItems(nodes[0]))
		},
	}
}

func topologyItems(node fleet.Node) []topologyItem {
	items := []topologyItem{}
	for _, g := range node.GPUs {
		place := g.Place()
		item := topologyItem{Name: g.Name, NVLinkDomain: place.NVLinkDomain, NUMANode: place.NUMANode, PCIeRoot: place.PCIeRoot, Claims: claimNames(g.Devices...)}
		for _, other := range node.GPUs {
			item.Paths = append(item.Paths, g.PathTo(other))
		}
		items = append(items, item)
	}
	return items
}

func (o *options) printTopology(items []topologyItem) error {
	t := table{heading: []string{"GPU"}, wide: []string{"NVLINK DOMAIN"}}
	for _, g := range items {
		t.heading = append(t.heading, g.Name)
	}
	t.heading = append(t.heading, "NUMA", "PCIE ROOT", "CLAIMS")
	for _, g := range items {
		row := []string{g.Name}
		for _, path := range g.Paths {
			row = append(row, string(path))
		}
		claims := "-"
		if len(g.Claims) > 0 {
			claims = g.Claims[0]
		}
		if more := len(g.Claims) - 1; more > 0 {
			claims = fmt.Sprintf("%s and %d more", claims, more)
		}
		t.rows = append(t.rows, append(row, cmp.Or(g.NUMANode, "-"), cmp.Or(g.PCIeRoot, "-"), claims, orDash(g.NVLinkDomain)))
	}
	return o.print(items, t)
}
