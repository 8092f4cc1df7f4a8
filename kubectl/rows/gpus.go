// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// GPU is a GPU in JSON and YAML.
type GPU struct {
	Node           string            `json:"node"`
	Name           string            `json:"name"`
	Model          string            `json:"model,omitempty"`
	UUID           string            `json:"uuid,omitempty"`
	Mode           fleet.Mode        `json:"mode"`
	Memory         resource.Quantity `json:"memory"`
	MemoryPromised resource.Quantity `json:"memoryPromised"`
	// MemoryStranded is the memory of a GPU in use in part that no further claim can get.
	MemoryStranded *resource.Quantity `json:"memoryStranded,omitempty"`
	// SlicesStranded are compute slices of a GPU with MIG devices in use that no further MIG device can get.
	SlicesStranded  int64 `json:"slicesStranded,omitempty"`
	Compute         int64 `json:"computePercent"`
	ComputePromised int64 `json:"computePercentPromised"`
	// Units are the parts of a GPU that claims take in parts; nil in other modes.
	Units  *Units `json:"units,omitempty"`
	Claims int    `json:"claims"`
	// Partial is true if claims that the user may not read can hold more of the GPU.
	Partial bool `json:"partial,omitempty"`
	Use
	// Foreign is nil if it is not known.
	Foreign *Foreign `json:"foreign,omitempty"`
	Health  Health   `json:"health"`
	// Taints keep pods away, as key=value:effect.
	Taints []string `json:"taints,omitempty"`
}

// ClaimsText returns the number of claims that hold the GPU, as far as the user may read them.
func (g GPU) ClaimsText() string { return g.bounded(g.Claims == 0, fmt.Sprint(g.Claims)) }

// bounded returns an amount that claims hold, or the least that it can be: claims that the user may
// not read can hold more.
func (g GPU) bounded(isZero bool, text string) string {
	switch {
	case g.Partial && isZero:
		return "?"
	case g.Partial:
		return "≥" + text
	default:
		return text
	}
}

// taints returns the taints of a GPU's devices that keep pods away, each once.
func taints(g fleet.GPU) []string {
	var all []string
	for _, d := range g.Devices {
		for _, taint := range d.Taints() {
			fleet.AddOnce(&all, fleet.TaintText(taint))
		}
	}
	return all
}

// ClaimNames returns the claims of devices as namespace/name, each once, in order.
func ClaimNames(devices ...fleet.Device) []string {
	var names []string
	for _, d := range devices {
		for _, h := range d.Holders {
			names = append(names, fleet.FullName(h.Claim))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Topology is a GPU and its paths to the GPUs of its node, in JSON and YAML.
type Topology struct {
	Name         string `json:"name"`
	NVLinkDomain string `json:"nvlinkDomain,omitempty"`
	NUMANode     string `json:"numaNode,omitempty"`
	PCIeRoot     string `json:"pcieRoot,omitempty"`
	PCIeSwitch   string `json:"pcieSwitch,omitempty"`
	// Paths are in the order of the GPUs.
	Paths []fleet.Path `json:"paths"`
	// Claims are the holders of the GPU, as namespace/name.
	Claims []string `json:"claims,omitempty"`
}

// Topologies returns the rows of a node's GPUs.
func Topologies(node fleet.Node) []Topology {
	rows := []Topology{}
	for _, g := range node.GPUs {
		place := g.Place()
		row := Topology{Name: g.Name, NVLinkDomain: place.NVLinkDomain, NUMANode: place.NUMANode, PCIeRoot: place.PCIeRoot, PCIeSwitch: g.Switch(), Claims: ClaimNames(g.Devices...)}
		for _, other := range node.GPUs {
			row.Paths = append(row.Paths, g.PathTo(other))
		}
		rows = append(rows, row)
	}
	return rows
}
