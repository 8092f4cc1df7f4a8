// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"io"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/picture"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// WriteTopology writes the picture of a node as SVG.
func WriteTopology(w io.Writer, c *rows.Cluster, node fleet.Node) error {
	var text strings.Builder
	if err := markup.Render(&text, picture.Draw(pictureOf(c, node), false)); err != nil {
		return err
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// pictureOf returns the contents of the picture of a node.
func pictureOf(c *rows.Cluster, node fleet.Node) picture.Node {
	n := picture.Node{Name: node.Name}
	for i, g := range c.GPUs([]fleet.Node{node}, nil)[:len(node.GPUs)] {
		shown := picture.GPU{
			Name: g.Name, Model: g.Model, Mode: string(g.Mode), Place: placeIn(node.GPUs[i].Place()), Claims: rows.ClaimNames(node.GPUs[i].Devices...),
			Memory: fmt.Sprintf("%s of %s promised", rows.Gibibytes(g.MemoryPromised), rows.Gibibytes(g.Memory)),
		}
		if g.Health.State != rows.HealthOK {
			shown.Health = steadyText(g.Health)
		}
		if total := g.Memory.AsApproximateFloat64(); total > 0 {
			shown.Part = g.MemoryPromised.AsApproximateFloat64() / total
		}
		n.GPUs = append(n.GPUs, shown)
	}
	for _, d := range c.Neighbors(node.Name) {
		n.Others = append(n.Others, picture.Device{Driver: d.ID.Driver, Name: d.ID.Device, Place: placeIn(d.Place()), Claims: rows.ClaimNames(d)})
	}
	return n
}

// placeIn returns the parts of a place that a picture shows.
func placeIn(p fleet.Place) picture.Place {
	return picture.Place{NVLinkDomain: p.NVLinkDomain, PCIeRoot: p.PCIeRoot, NUMANode: p.NUMANode}
}
