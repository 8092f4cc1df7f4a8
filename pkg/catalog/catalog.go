// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Settings are the parts of a catalog that do not change while the agent runs.
type Settings struct {
	// Pool is the name of the node's pool: the name of the node.
	Pool string
	// Selection of the published attributes.
	Selection kind.Selection
	// ListAttributes publishes NVLink peers and cliques as lists, for clusters
	// with the feature gate DRAListTypeAttributes.
	ListAttributes bool
}

// Restrictions follow from features that the cluster lacks. The zero value is for a
// cluster that has them all.
type Restrictions struct {
	// Exclusive publishes no shareable devices, for clusters without consumable
	// capacity. Every GPU and every partition then belongs to one claim at a time,
	// and there are neither time slices nor seats.
	Exclusive bool
	// NoCounters publishes no devices that consume counters: MIG devices made on
	// demand, time slices and seats. It is for clusters without partitionable devices,
	// and for clusters whose scheduler forgets the counters of shareable devices:
	// there the scheduler could allocate such a device and the whole GPU together.
	NoCounters bool
}

// Inputs determine a [Catalog].
type Inputs struct {
	Settings
	NodeConfig
	Restrictions
	// Partitions selects the GPUs that are offered in parts if MIG is offered, and the
	// parts. It is nil if they follow from the configuration. See [MIGOffer.Layout].
	Partitions *Layout
	// Conditions of the GPUs.
	Conditions Conditions
	// Taken orders the devices of the node; see order.
	Taken Taken
	// InUse keeps new claims from devices that are in use although the cluster counts
	// them as free.
	InUse InUse
}

// Catalog describes the GPUs of one node. It is immutable, and its methods are pure functions
// of its inputs.
type Catalog struct{ inputs Inputs }

// New returns the catalog that follows from the inputs, which must not be changed.
func New(inputs Inputs) Catalog { return Catalog{inputs} }

// WantsCounters reports whether the offer has devices that consume counters.
func (c Catalog) WantsCounters() bool {
	return slices.ContainsFunc(kind.Divided(), c.inputs.Offer.Has) || c.inputs.Offer.Partitions() && !c.inputs.MIG.Static && c.inputs.Partitions == nil
}

// Conditions has the conditions of GPUs. A GPU that is missing is healthy.
type Conditions map[gpu.PCIAddress]use.Conditions

// InUse maps the names of devices to the value of their taint [v1alpha1.TaintInUse].
// Devices that have a part of the GPU in common get the same taint.
type InUse map[kind.Name]string

// Held maps the devices that claims hold to true if the allocation has
// a share ID. Every allocation of a shareable device has one, even of all of it.
//
// Held devices stay published, and with a share ID they stay shareable, even if the
// node no longer offers them: the scheduler would allocate the hardware of a device
// that it no longer sees to another claim in another form. A taint keeps other
// claims from a device that is no longer offered.
type Held map[kind.Name]bool

// PartsOf returns the MIG devices of a GPU that are held, in order.
func (h Held) PartsOf(address gpu.PCIAddress) []kind.Name {
	var names []kind.Name
	for name := range h {
		if name.IsPartition() && name.Address == address {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, kind.Compare)
	return names
}

// Resources describes the node as one pool. GPUs are in order of the PCI
// address. For a node without GPUs it returns a pool with one empty slice, as a
// sign that the driver runs.
//
// The node must be described without the effects of claims: without the MIG modes
// that they have switched and the partitions that they have created.
func (c Catalog) Resources(node gpu.Node, held Held) resourceslice.DriverResources {
	gpus := slices.SortedFunc(slices.Values(node.GPUs), func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) })
	links := newNeighbourhood(gpus)
	cut := c.cut(gpus)
	groups := make([]group, len(gpus))
	for i, g := range gpus {
		o := c.onGPU(node, links, g, cut[g.Address], held)
		for _, k := range kind.All() {
			name := kind.Name{Kind: k, Address: g.Address}
			switch {
			case k.HasUnits():
				groups[i].fractions = append(groups[i].fractions, o.units(name)...)
			case k.Scope() == kind.ScopePartition:
				groups[i].parts = append(groups[i].parts, o.partitions()...)
			case k.Scope() == kind.ScopeGPU:
				groups[i].whole = append(groups[i].whole, o.whole(name)...)
			}
		}
		if !o.fixed && len(groups[i].fractions) > 0 && len(o.counters) == 0 {
			o.counters = []counter{wholeCounter(len(o.parts))}
		}
		groups[i].setCounters(g, o.counters)
	}
	published := paginate(groups, c.nodeDevices(node, held))
	c.order(published)
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{c.inputs.Pool: {Slices: published}}}
}

// Attributes returns the attributes of a device for the metadata of containers. It
// includes attributes that are published only on request or not at all. It returns nil if
// the node has no such device.
func (c Catalog) Attributes(node gpu.Node, name kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	if name.Kind.Scope() == kind.ScopeNode {
		return name.Kind.Attributes(kind.Inputs{Node: node})
	}
	i := slices.IndexFunc(node.GPUs, func(g gpu.GPU) bool { return g.Address == name.Address })
	if i < 0 {
		return nil
	}
	o := c.onGPU(node, newNeighbourhood(node.GPUs), node.GPUs[i], false, nil)
	if _, _, known := name.FindIn(o.gpu.MIG); name.IsPartition() && !known {
		return nil
	}
	f := o.inputsOf(name)
	f.All = true
	attributes := name.Kind.Attributes(f)
	attributes.Nearby(o.gpu.GPU)
	return attributes
}
