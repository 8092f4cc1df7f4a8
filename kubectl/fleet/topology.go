// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Path is the nearest way between two GPUs that is known, in the words of nvidia-smi.
type Path string

// The paths, the nearest first.
const (
	PathSelf Path = "X"
	// PathNVLink is NVLink. The number of links follows if it is known: "NV18".
	PathNVLink Path = "NV"
	// PathSwitch is one PCIe switch, and PathSwitches are several of them.
	PathSwitch   Path = "PIX"
	PathSwitches Path = "PXB"
	// PathHostBridge is a PCIe root that both GPUs are below, but no common switch.
	PathHostBridge Path = "PHB"
	// PathPCIe is a PCIe root that both GPUs are below, perhaps on one switch.
	PathPCIe Path = "PCI"
	// PathNode is the NUMA node of both GPUs, across PCIe roots.
	PathNode Path = "NODE"
	// PathSystem crosses NUMA nodes.
	PathSystem Path = "SYS"
	// PathUnknown is a path between GPUs of which one does not publish its place.
	PathUnknown Path = "?"
)

// Place is where a device is in its node, as published; empty if it is not.
type Place struct {
	NVLinkDomain, PCIeRoot, NUMANode string
	// PCIeSwitch is as the attribute of that name.
	PCIeSwitch string
}

// Wiring is the connections of a GPU as the agent of its node knows them.
type Wiring struct {
	// Links is the number of NVLinks to each linked GPU, by the name of its device.
	Links map[string]int
	// PCIeSwitch is as the attribute of that name; empty without a switch.
	PCIeSwitch string
}

// Whole returns the device of the whole GPU; the zero value if there is none.
func (g GPU) Whole() Device {
	if i := slices.IndexFunc(g.Devices, func(d Device) bool { return d.ID.Device == g.Name }); i >= 0 {
		return g.Devices[i]
	}
	return Device{}
}

// Place returns the place of the GPU.
func (g GPU) Place() Place { return g.Whole().Place() }

// Place returns the place of the device. Devices of any driver can have one.
func (d Device) Place() Place {
	if d.Published == nil {
		return Place{}
	}
	p := Place{NVLinkDomain: d.text(v1alpha1.AttributeNVLinkDomain), PCIeRoot: d.text(deviceattribute.StandardDeviceAttributePCIeRoot), PCIeSwitch: d.text(v1alpha1.AttributePCIeSwitch)}
	switch numa := d.Published.Attributes[deviceattribute.StandardDeviceAttributeNUMANode]; {
	case numa.IntValue != nil:
		p.NUMANode = strconv.FormatInt(*numa.IntValue, 10)
	case len(numa.IntValues) > 0:
		// The first one is the nearest.
		p.NUMANode = strconv.FormatInt(numa.IntValues[0], 10)
	}
	return p
}

// PathTo returns the path to another GPU of the node.
func (g GPU) PathTo(other GPU) Path {
	a, b := g.Place(), other.Place()
	same := func(x, y string) bool { return x != "" && x == y }
	switch {
	case g.Name == other.Name:
		return PathSelf
	case g.Wiring != nil && g.Wiring.Links[other.Name] > 0:
		return PathNVLink + Path(strconv.Itoa(g.Wiring.Links[other.Name]))
	case g.Wiring == nil && (same(a.NVLinkDomain, b.NVLinkDomain) || g.isPeer(other)):
		return PathNVLink
	case same(a.PCIeRoot, b.PCIeRoot):
		return pathBelowRoot(g, other)
	case same(a.NUMANode, b.NUMANode):
		return PathNode
	case a.NUMANode == "" || b.NUMANode == "":
		return PathUnknown
	default:
		return PathSystem
	}
}

// Switch returns the PCIe switch of the GPU from the attribute of that name. It returns ""
// if the GPU has none or it is not known.
func (g GPU) Switch() string {
	if g.Wiring != nil {
		return g.Wiring.PCIeSwitch
	}
	return g.Place().PCIeSwitch
}

// pathBelowRoot returns the path between two GPUs below one PCIe root, by their switches. It
// is [PathPCIe] if these are not known.
func pathBelowRoot(a, b GPU) Path {
	outermost := func(s string) string { first, _, _ := strings.Cut(s, "/"); return first }
	switch x, y := a.Switch(), b.Switch(); {
	case x != "" && x == y:
		return PathSwitch
	case x != "" && outermost(x) == outermost(y):
		return PathSwitches
	case a.Wiring == nil && (x == "" || y == ""):
		return PathPCIe
	default:
		return PathHostBridge
	}
}

// isPeer reports whether the GPU publishes another one as a peer. The attribute is a list of
// device names, or a text with these names without "gpu-", or with buses only.
func (g GPU) isPeer(other GPU) bool {
	d := g.Whole()
	if d.Published == nil {
		return false
	}
	peers := d.Published.Attributes[v1alpha1.AttributeNVLinkPeers]
	return slices.Contains(peers.StringValues, other.Name) || peers.StringValue != nil && slices.ContainsFunc(strings.Split(*peers.StringValue, ","), func(peer string) bool {
		name := "gpu-" + peer
		return name == other.Name || strings.HasPrefix(other.Name, name+"-")
	})
}
