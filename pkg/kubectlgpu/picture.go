// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/picture"
)

// pictureOf returns the contents of the picture of a node.
func (v *view) pictureOf(node fleet.Node) picture.Node {
	n := picture.Node{Name: node.Name}
	for _, g := range node.GPUs {
		shown := picture.GPU{
			Name: g.Name, Model: g.Model, Mode: string(g.Mode), Place: placeIn(g.Place()), Taints: taints(g), Claims: claimNames(g.Devices...),
			Memory: fmt.Sprintf("%s of %s promised", gibibytes(g.Memory.Promised), gibibytes(g.Memory.Total)),
		}
		if total := g.Memory.Total.AsApproximateFloat64(); total > 0 {
			shown.Part = g.Memory.Promised.AsApproximateFloat64() / total
		}
		n.GPUs = append(n.GPUs, shown)
	}
	for _, d := range v.Neighbors(node.Name) {
		n.Others = append(n.Others, picture.Device{Driver: d.ID.Driver, Name: d.ID.Device, Place: placeIn(d.Place()), Claims: claimNames(d)})
	}
	return n
}

// placeIn returns the parts of a place that a picture shows.
func placeIn(p fleet.Place) picture.Place {
	return picture.Place{NVLinkDomain: p.NVLinkDomain, PCIeRoot: p.PCIeRoot, NUMANode: p.NUMANode}
}

// claimNames returns the claims of devices as namespace/name, each once, in order.
func claimNames(devices ...fleet.Device) []string {
	var names []string
	for _, d := range devices {
		for _, h := range d.Holders {
			names = append(names, h.Claim.Namespace+"/"+h.Claim.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
