// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
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

// Catalog describes the GPUs of one node. It is immutable.
type Catalog struct {
	Settings
	NodeConfig
	// Partitions selects the GPUs that are offered in parts if MIG is offered, and the
	// parts; nil if they follow from the configuration. See [MIGOffer.Layout].
	Partitions *Layout
	// Taken orders the devices of the node; see order.
	Taken Taken
	// InUse keeps new claims from devices that are in use although the cluster counts
	// them as free.
	InUse InUse
	Restrictions
}

// New returns the catalog of a node with the configuration, in a cluster with the
// restrictions.
func New(settings Settings, config NodeConfig, restrictions Restrictions) Catalog {
	return Catalog{Settings: settings, NodeConfig: config, Restrictions: restrictions}
}

// WantsCounters reports whether the offer has devices that consume counters.
func (c Catalog) WantsCounters() bool {
	return c.Offer.TimeSlice || c.Offer.Seat || c.Offer.MIG && !c.MIG.Static && c.Partitions == nil
}

// Unhealthy maps each GPU that must not be allocated to the reason, as a label
// value.
type Unhealthy map[gpu.PCIAddress]string

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
// The node must be described as it would be without claims: without the MIG modes
// that they have switched and the partitions that they have created.
func (c Catalog) Resources(node gpu.Node, unhealthy Unhealthy, held Held) resourceslice.DriverResources {
	gpus := slices.SortedFunc(slices.Values(node.GPUs), func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) })
	links := newNeighbourhood(gpus)
	cut := c.cut(gpus)
	groups := make([]group, len(gpus))
	for i, g := range gpus {
		parts, counters := c.parts(g, cut[g.Address], held)
		facts := use.State{GPU: g, Unhealthy: unhealthy[g.Address], MPS: c.Shares.MPS}
		fixed := c.heldOnly(g) || c.fixed(g, cut[g.Address])
		slots, seats := c.timeSliced(g, held, fixed), c.seated(g, held, fixed)
		if !fixed && (slots || seats) && len(counters) == 0 {
			counters = []counter{wholeCounter(len(parts))}
		}
		consumed := consumption(g, counters, len(parts))

		if c.hasWhole(g, held, fixed, len(parts)) {
			whole := c.device(node, links, g, held, !c.MIG.Static && (cut[g.Address] || len(parts) > 0))
			withdrawn := c.withdrawnShare(g, whole)
			if fixed {
				withdrawn = v1alpha1.WithdrawnGPU
			}
			whole.ConsumesCounters = consumed[0]
			whole.Taints = c.taints(facts, kind.Whole(g.Address), c.sharing(g, whole), withdrawn)
			groups[i].whole = append(groups[i].whole, whole)
		}
		for j, p := range parts {
			device := c.part(g, p, fixed, held)
			device.ConsumesCounters = consumed[1+j]
			if p.withdrawn {
				device.Taints = c.taints(facts, p.name(g), use.Alone, v1alpha1.OfferMIG)
			} else {
				device.Taints = c.taints(facts, p.name(g), c.sharing(g, device), c.withdrawnShare(g, device))
			}
			groups[i].parts = append(groups[i].parts, device)
		}
		if slots {
			device, withdrawn := c.slots(node, g), ""
			if fixed || !c.offersSlots() {
				withdrawn = v1alpha1.OfferTimeSlice
			}
			device.ConsumesCounters = consumed[0]
			device.Taints = c.taints(facts, kind.Slots(g.Address), use.TimeSlices, withdrawn)
			groups[i].fractions = append(groups[i].fractions, device)
		}
		if seats {
			device, withdrawn := c.seats(node, g), ""
			if fixed || !c.offersSeats(g) {
				withdrawn = v1alpha1.OfferSeat
			}
			device.ConsumesCounters = consumed[0]
			device.Taints = c.taints(facts, kind.Seats(g.Address), use.ByMPS, withdrawn)
			groups[i].fractions = append(groups[i].fractions, device)
		}
		if len(counters) > 0 {
			groups[i].counters = []resourceapi.CounterSet{counterSet(g, counters)}
		}
	}
	pages := pages(groups, c.nodeDevices(node, held))
	c.order(pages)
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{c.Pool: {Slices: pages}}}
}

// heldOnly reports whether only held devices of the GPU are published, because it is not
// known how the GPU should be offered.
func (c Catalog) heldOnly(g gpu.GPU) bool {
	return c.HeldOnly || c.Offer.MIG && !c.MIG.Static && c.Partitions.lacks(g.Address)
}

// hasWhole reports whether the GPU is published as a whole. A GPU whose partitions are
// fixed is not, unless claims hold it. Neither is one with partitions of an earlier
// layout that claims hold, in a cluster without counters that would exclude them.
func (c Catalog) hasWhole(g gpu.GPU, held Held, fixed bool, parts int) bool {
	_, taken := held[kind.Whole(g.Address)]
	return taken || !fixed && (parts == 0 || c.MIG.Static || !c.NoCounters)
}

// Attributes returns the attributes of a device for the metadata of containers, including
// attributes that are published only on request or not at all; nil if the node has no such
// device.
func (c Catalog) Attributes(node gpu.Node, name kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	if name.Kind.Scope() == kind.ScopeNode {
		return name.Kind.Attributes(kind.Inputs{Node: node})
	}
	i := slices.IndexFunc(node.GPUs, func(g gpu.GPU) bool { return g.Address == name.Address })
	if i < 0 {
		return nil
	}
	g := node.GPUs[i]
	var attributes kind.Attributes
	switch {
	case name.Kind == kind.TimeSlice:
		attributes = name.Kind.Attributes(c.slotFacts(node, g))
	case name.Kind == kind.Seat:
		attributes = name.Kind.Attributes(c.seatFacts(node, g))
	case !name.IsPartition():
		attributes = name.Kind.Attributes(c.facts(node, newNeighbourhood(node.GPUs), g, nil))
	default:
		parts := find(g, name)
		if len(parts) == 0 {
			return nil
		}
		f := c.partFacts(g, parts[0], nil)
		f.All = true
		attributes = kind.MIG.Attributes(f)
	}
	attributes.Nearby(g)
	return attributes
}

// facts returns what the attributes of a whole GPU follow from.
func (c Catalog) facts(node gpu.Node, links neighbourhood, g gpu.GPU, held Held) kind.Inputs {
	f := kind.Inputs{Node: node, GPU: g, NVLink: links.of(g.Address), Lists: c.ListAttributes}
	c.Shares.describe(&f, kind.Whole(g.Address), c.sharedGPU(g, held))
	return f
}

// sharedGPU reports whether claims can take shares of a whole GPU.
func (c Catalog) sharedGPU(g gpu.GPU, held Held) bool {
	return c.shared(g, kind.Whole(g.Address), c.Shares.Memory(g, true), held)
}

// device returns a whole GPU. Its MIG mode varies if claims switch it.
func (c Catalog) device(node gpu.Node, links neighbourhood, g gpu.GPU, held Held, modeVaries bool) resourceapi.Device {
	shared := c.sharedGPU(g, held)
	facts := c.facts(node, links, g, held)
	facts.MIGModeVaries = modeVaries
	device := resourceapi.Device{
		Name:       g.Address.DeviceName(),
		Attributes: c.Selection.Published(kind.GPU.Attributes(facts)),
		Capacity:   kind.GPU.Capacities(c.Shares.amounts(g, shared)),
	}
	if shared {
		device.AllowMultipleAllocations = &shared
	}
	return device
}
