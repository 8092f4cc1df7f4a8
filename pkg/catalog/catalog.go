package catalog

import (
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

// devicesPerSlice is what a slice may hold once one of its devices has a
// taint. Keeping to it from the start lets any device get one without moving
// the others to another slice.
const devicesPerSlice = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// Catalog describes the GPUs of one node.
type Catalog struct {
	// Pool is the name of the node's pool: the name of the node.
	Pool string
	// Offer is what the node offers besides whole GPUs.
	Offer Offer
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

// Resources describes the node as one pool. Devices are in order of the PCI
// address. A node without GPUs gives a pool with one empty slice, which tells
// that the driver is up.
func (c Catalog) Resources(node gpu.Node, unhealthy Unhealthy) resourceslice.DriverResources {
	gpus := slices.SortedFunc(slices.Values(node.GPUs), func(a, b gpu.GPU) int { return a.Address.Compare(b.Address) })
	around := newNeighbourhood(gpus)
	devices := make([]resourceapi.Device, len(gpus))
	for i, g := range gpus {
		devices[i] = c.device(node, around, g)
		devices[i].Taints = taints(g, unhealthy[g.Address])
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{}}}
	if len(devices) > 0 {
		pool.Slices = nil
		for chunk := range slices.Chunk(devices, devicesPerSlice) {
			pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
		}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{c.Pool: pool}}
}

// Attributes gives the published attributes of one GPU of the node, nil if it
// is not there.
func (c Catalog) Attributes(node gpu.Node, address gpu.PCIAddress) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	i := slices.IndexFunc(node.GPUs, func(g gpu.GPU) bool { return g.Address == address })
	if i < 0 {
		return nil
	}
	return c.device(node, newNeighbourhood(node.GPUs), node.GPUs[i]).Attributes
}

func (c Catalog) device(node gpu.Node, around neighbourhood, g gpu.GPU) resourceapi.Device {
	shared := c.Offer.Share && !c.Exclusive && shareable(g)
	a := identify(node, g)
	around.describe(a, g, c.ListAttributes)
	device := resourceapi.Device{
		Name:       g.Address.DeviceName(),
		Attributes: a,
		Capacity:   capacities(g, shared),
	}
	if shared {
		device.AllowMultipleAllocations = &shared
	}
	return device
}

func taints(g gpu.GPU, reason string) []resourceapi.DeviceTaint {
	var taints []resourceapi.DeviceTaint
	if reason != "" {
		taints = append(taints, resourceapi.DeviceTaint{Key: TaintUnhealthy, Value: reason, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	if g.MIG.Enabled {
		taints = append(taints, resourceapi.DeviceTaint{Key: TaintMIGMode, Value: "enabled", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return taints
}
