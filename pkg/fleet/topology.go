// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strconv"

	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Path is the nearest way between two GPUs that their published attributes show.
type Path string

// The paths, the nearest first.
const (
	PathSelf Path = "X"
	// PathNVLink is NVLink: the GPUs are of one NVLink domain.
	PathNVLink Path = "NV"
	// PathPCIe is a PCIe root that both GPUs are below.
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
}

// Place returns the place of the GPU.
func (g GPU) Place() Place {
	for _, d := range g.Devices {
		if d.ID.Device == g.Name {
			return d.Place()
		}
	}
	return Place{}
}

// Place returns the place of the device. Devices of any driver can have one.
func (d Device) Place() Place {
	if d.Published == nil {
		return Place{}
	}
	p := Place{NVLinkDomain: d.text(v1alpha1.AttributeNVLinkDomain), PCIeRoot: d.text(deviceattribute.StandardDeviceAttributePCIeRoot)}
	switch numa := d.Published.Attributes[deviceattribute.StandardDeviceAttributeNUMANode]; {
	case numa.IntValue != nil:
		p.NUMANode = strconv.FormatInt(*numa.IntValue, 10)
	case len(numa.IntValues) > 0:
		// The first one is the nearest.
		p.NUMANode = strconv.FormatInt(numa.IntValues[0], 10)
	}
	return p
}

// Neighbors returns the devices of other drivers on a node that have a place in it, such as
// NICs and CPUs, in order of their drivers and names.
func (f *Fleet) Neighbors(node string) []Device {
	var all []Device
	for pool, newest := range newestPools(f.published[node]) {
		if pool.driver == f.Driver {
			continue
		}
		for _, slice := range newest.slices {
			for i := range slice.Spec.Devices {
				d := f.device(DeviceID{pool.driver, pool.name, slice.Spec.Devices[i].Name}, &slice.Spec.Devices[i])
				if d.Place() != (Place{}) {
					all = append(all, d)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Device) int { return a.ID.compare(b.ID) })
	return all
}

// PathTo returns the path to another GPU of the node.
func (g GPU) PathTo(other GPU) Path {
	a, b := g.Place(), other.Place()
	same := func(x, y string) bool { return x != "" && x == y }
	switch {
	case g.Name == other.Name:
		return PathSelf
	case same(a.NVLinkDomain, b.NVLinkDomain):
		return PathNVLink
	case same(a.PCIeRoot, b.PCIeRoot):
		return PathPCIe
	case same(a.NUMANode, b.NUMANode):
		return PathNode
	case a.NUMANode == "" || b.NUMANode == "":
		return PathUnknown
	default:
		return PathSystem
	}
}
