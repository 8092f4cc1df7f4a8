package catalog

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// The keys of the taints that devices get.
const (
	// TaintUnhealthy marks a GPU that has failed or does not answer. Its value
	// is the reason, such as "xid-79" or "lost".
	TaintUnhealthy = "gpu.nvidia.com/unhealthy"
	// TaintMIGMode marks a GPU that somebody has switched to MIG mode, in which
	// it runs nothing as a whole.
	TaintMIGMode = "gpu.nvidia.com/mig-mode"
)

// Catalog describes the GPUs of one node.
type Catalog struct {
	// Pool is the name of the node's pool: the name of the node.
	Pool string
	// Offer is what the node offers besides whole GPUs, and MIG how it offers
	// MIG if it does.
	Offer Offer
	MIG   MIGOffer
	// Exclusive leaves out what makes GPUs shareable, for clusters without
	// consumable capacity. Every GPU then belongs to one claim at a time.
	Exclusive bool
	// ListAttributes publishes NVLink peers and cliques as lists, for clusters
	// with the feature gate DRAListTypeAttributes.
	ListAttributes bool
}

// Unhealthy gives the reason for each GPU that is not to be allocated, as a
// label value.
type Unhealthy map[gpu.PCIAddress]string

// Held are the devices that claims hold, by their names, and whether they hold
// shares of them rather than the device to themselves. They stay published, and
// shareable if they are shared, whatever the node offers: the scheduler would
// give a device that it no longer sees to the next claim in another form.
type Held map[string]bool

// PartsOf gives the MIG devices of a GPU that are held, in order.
func (h Held) PartsOf(address gpu.PCIAddress) []gpu.DeviceName {
	var names []gpu.DeviceName
	for _, s := range slices.Sorted(maps.Keys(h)) {
		if name, err := gpu.ParseDeviceName(s); err == nil && name.Kind == gpu.KindMIG && name.Address == address {
			names = append(names, name)
		}
	}
	return names
}

// Resources describes the node as one pool. GPUs are in order of the PCI
// address. A node without GPUs gives a pool with one empty slice, which tells
// that the driver is up.
//
// The node is as it would be without the claims: MIG modes that they have
// switched and partitions that they have made are not in it.
func (c Catalog) Resources(node gpu.Node, unhealthy Unhealthy, held Held) resourceslice.DriverResources {
	gpus := slices.SortedFunc(slices.Values(node.GPUs), func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) })
	around := newNeighbourhood(gpus)
	cut := c.cut(gpus)
	groups := make([]group, len(gpus))
	for i, g := range gpus {
		parts, counters := c.parts(g, cut[g.Address], held)
		wholeTaints, partTaints := taints(g, unhealthy[g.Address])
		consumed := consumption(g, counters, len(parts))

		whole := c.device(node, around, g, held)
		if !c.MIG.Static && (cut[g.Address] || len(parts) > 0) {
			// It comes and goes with the claims.
			delete(whole.Attributes, "migMode")
		}
		whole.Taints, whole.ConsumesCounters = wholeTaints, consumed[0]
		groups[i].whole = whole
		for j, p := range parts {
			device := p.device(g, c.MIG.AllAttributes)
			device.Taints, device.ConsumesCounters = partTaints, consumed[1+j]
			groups[i].parts = append(groups[i].parts, device)
		}
		if len(counters) > 0 {
			groups[i].counters = []resourceapi.CounterSet{counterSet(g, counters)}
		}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{c.Pool: {Slices: pages(groups)}}}
}

// Attributes gives the attributes of a device of the node, of a MIG device those
// too that are published only on demand; nil if it is not there.
func (c Catalog) Attributes(node gpu.Node, name gpu.DeviceName) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	i := slices.IndexFunc(node.GPUs, func(g gpu.GPU) bool { return g.Address == name.Address })
	if i < 0 {
		return nil
	}
	if name.Kind == gpu.KindMIG {
		for _, p := range find(node.GPUs[i], name) {
			return p.attributes(node.GPUs[i], true)
		}
		return nil
	}
	return c.device(node, newNeighbourhood(node.GPUs), node.GPUs[i], nil).Attributes
}

func (c Catalog) device(node gpu.Node, around neighbourhood, g gpu.GPU, held Held) resourceapi.Device {
	name := g.Address.DeviceName()
	shared := (c.Offer.Share || held[name]) && !c.Exclusive && shareable(g)
	a := identify(node, g)
	around.describe(a, g, c.ListAttributes)
	device := resourceapi.Device{
		Name:       name,
		Attributes: a,
		Capacity:   capacities(g, shared),
	}
	if shared {
		device.AllowMultipleAllocations = &shared
	}
	return device
}

// taints of all devices of a GPU. In MIG mode it runs nothing as a whole, but
// its parts do.
func taints(g gpu.GPU, reason string) (whole, parts []resourceapi.DeviceTaint) {
	if reason != "" {
		parts = []resourceapi.DeviceTaint{{Key: TaintUnhealthy, Value: reason, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	whole = parts
	if g.MIG.Enabled {
		whole = append(slices.Clone(parts), resourceapi.DeviceTaint{Key: TaintMIGMode, Value: "enabled", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return whole, parts
}
