// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Node is a node and its GPUs.
type Node struct {
	Name string
	// GPUs in order of their names.
	GPUs []GPU
	// Devices are all devices of the node, also those of no single GPU.
	Devices []Device
}

// GPU is a GPU, and the devices of it that the node publishes or claims hold.
type GPU struct {
	// Name of the GPU's device, such as "gpu-1b-00", also if the node does not publish it.
	Name string
	// Model and UUID are empty if the node does not publish them.
	Model, UUID string
	// Memory in bytes and Compute in percent of the SMs, as published. A GPU that is
	// published in parts only has the memory of these, and no compute.
	Memory  Amount[resource.Quantity]
	Compute Amount[int64]
	// Stranded is the part of a GPU in use that is free and that no further claim can get.
	Stranded catalog.Stranded
	// Mode is how claims use the GPU.
	Mode Mode
	// Devices in order of their names.
	Devices []Device
	// Wiring is nil unless the caller has read it from the agent of the node.
	Wiring *Wiring
}

// Amount is how much a GPU has, and how much of that is promised to claims.
type Amount[T any] struct{ Total, Promised T }

// Device is a published device, or one that claims hold.
type Device struct {
	ID DeviceID
	// Kind is empty for a device of another driver.
	Kind kind.Kind
	// Published is nil for a device that claims hold and the node no longer publishes.
	Published *resourceapi.Device
	Holders   []Holder
}

// Mode is how claims use a GPU.
type Mode string

// The modes of a GPU.
const (
	ModeFree   Mode = "free"
	ModeWhole  Mode = "whole"
	ModeShared Mode = "shared"
)

// Nodes returns the nodes with devices of this driver, in order of their names.
func (f *Fleet) Nodes() []Node {
	pools := map[string][]Device{}
	pages := map[string][]resourceslice.Slice{}
	for name, all := range f.published {
		for pool, newest := range newestPools(all) {
			if pool.driver != f.Driver {
				continue
			}
			node := cmp.Or(name, pool.name)
			for _, slice := range newest.slices {
				pages[node] = append(pages[node], resourceslice.Slice{Devices: slice.Spec.Devices, SharedCounters: slice.Spec.SharedCounters})
				for i := range slice.Spec.Devices {
					pools[node] = append(pools[node], f.device(DeviceID{pool.driver, pool.name, slice.Spec.Devices[i].Name}, &slice.Spec.Devices[i]))
				}
			}
		}
	}
	published := map[DeviceID]bool{}
	for _, devices := range pools {
		for _, d := range devices {
			published[d.ID] = true
		}
	}
	for id := range f.holders {
		// A node's pool has the node's name.
		if id.Driver == f.Driver && !published[id] {
			pools[id.Pool] = append(pools[id.Pool], f.device(id, nil))
		}
	}
	var nodes []Node
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		nodes = append(nodes, Node{Name: name, GPUs: gpus(pools[name], stranded(pages[name], pools[name])), Devices: pools[name]})
	}
	return nodes
}

func (f *Fleet) device(id DeviceID, published *resourceapi.Device) Device {
	return Device{ID: id, Published: published, Holders: f.holders[id], Kind: NameOf(id.Device).Kind}
}

// NameOf returns the name of a device of this driver. It returns the zero value if no
// agent of this driver publishes such a device.
func NameOf(device string) kind.Name {
	name, err := kind.Parse(device)
	if err != nil {
		return kind.Name{}
	}
	return name
}

// GPUOf returns the name of the GPU that a device belongs to; the name itself if it is not of one GPU of
// this driver.
func GPUOf(device string) string {
	if name := NameOf(device); name.OnGPU() {
		return kind.Whole(name.Address).String()
	}
	return device
}

// gpus groups devices by their GPU. A device that is not of one GPU is none.
func gpus(devices []Device, stranded map[string]catalog.Stranded) []GPU {
	byName := map[string][]Device{}
	for _, d := range devices {
		if name := NameOf(d.ID.Device); name.OnGPU() || name == (kind.Name{}) {
			byName[GPUOf(d.ID.Device)] = append(byName[GPUOf(d.ID.Device)], d)
		}
	}
	var all []GPU
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		own := byName[name]
		slices.SortFunc(own, func(a, b Device) int { return a.ID.compare(b.ID) })
		g := newGPU(name, own)
		g.Stranded = stranded[name]
		all = append(all, g)
	}
	return all
}

func newGPU(name string, devices []Device) GPU {
	g := GPU{Name: name, Devices: devices, Mode: ModeFree}
	for _, d := range devices {
		g.Model = cmp.Or(g.Model, d.text(v1alpha1.AttributeProductName))
		memory, whole := d.capacity(v1alpha1.CapacityMemory), d.ID.Device == name
		switch {
		case whole:
			g.UUID, g.Memory.Total = d.text(v1alpha1.AttributeUUID), memory
			compute := d.capacity(v1alpha1.CapacityCompute)
			g.Compute.Total = cmp.Or(compute.Value(), kind.WholeCompute)
		case d.Kind.Scope() == kind.ScopePartition:
			g.UUID = cmp.Or(g.UUID, d.text(v1alpha1.AttributeParentUUID))
		}
	}
	parts := g.Memory.Total.IsZero()
	for _, d := range devices {
		if parts && d.Kind.Scope() == kind.ScopePartition {
			g.Memory.Total.Add(d.capacity(v1alpha1.CapacityMemory))
		}
	}
	for d, h := range g.Holders() {
		memory, compute := d.Promised(h)
		g.Memory.Promised.Add(memory)
		g.Compute.Promised += compute
		g.Mode = d.mode(h)
	}
	return g
}

// Promised returns the memory in bytes and the compute in percent that an allocation of the
// device takes.
func (d Device) Promised(h Holder) (memory resource.Quantity, compute int64) {
	if !h.Shared() {
		if d.isWhole() {
			compute = kind.WholeCompute
		}
		return d.capacity(v1alpha1.CapacityMemory), compute
	}
	percent := h.Result.ConsumedCapacity[v1alpha1.CapacityCompute]
	memory = h.Result.ConsumedCapacity[v1alpha1.CapacityMemory]
	if d.Kind.Takes() == kind.TakesSeats {
		each, seats := d.capacity(v1alpha1.CapacityMemory), h.Result.ConsumedCapacity[d.Kind.Units().Capacity]
		memory = *resource.NewQuantity(each.Value()*seats.Value(), resource.BinarySI)
	}
	if compute = percent.Value(); compute == 0 && d.takesAll(h) {
		compute = kind.WholeCompute
	}
	return memory, compute
}

// Slots returns the number of time slices that an allocation of the device takes.
func (d Device) Slots(h Holder) int64 {
	if d.Kind.Takes() != kind.TakesSlots {
		return 0
	}
	slots := h.Result.ConsumedCapacity[d.Kind.Units().Capacity]
	return slots.Value()
}

// AllSlots returns the number of time slices of the device; 0 if it has none.
func (d Device) AllSlots() int64 {
	if d.Kind.Takes() != kind.TakesSlots {
		return 0
	}
	slots := d.capacity(d.Kind.Units().Capacity)
	return slots.Value()
}

// takesAll reports whether an allocation takes all of a device that others could share.
func (d Device) takesAll(h Holder) bool {
	memory, all := h.Result.ConsumedCapacity[v1alpha1.CapacityMemory], d.capacity(v1alpha1.CapacityMemory)
	return d.isWhole() && d.Published != nil && memory.Cmp(all) == 0
}

// isWhole reports whether the device is a whole GPU, of which claims take memory.
func (d Device) isWhole() bool { return d.Kind.Scope() == kind.ScopeGPU && !d.Kind.DividesGPU() }

func (d Device) mode(h Holder) Mode {
	switch {
	case d.Kind.DividesGPU():
		return Mode(d.Kind)
	case h.Shared() && !d.takesAll(h):
		return ModeShared
	default:
		return ModeWhole
	}
}

// capacity returns an amount that the device publishes; zero if it publishes none.
func (d Device) capacity(name resourceapi.QualifiedName) resource.Quantity {
	if d.Published == nil {
		return resource.Quantity{}
	}
	return d.Published.Capacity[name].Value
}

// text returns a string attribute; "" if the device does not publish it.
func (d Device) text(name resourceapi.QualifiedName) string {
	if d.Published == nil {
		return ""
	}
	if value := d.Published.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// pool names a pool.
type pool struct{ driver, name string }

// poolSlices are the slices of a pool's newest generation.
type poolSlices struct {
	generation int64
	slices     []*resourceapi.ResourceSlice
}

func (p poolSlices) complete() bool {
	return len(p.slices) > 0 && int64(len(p.slices)) == p.slices[0].Spec.Pool.ResourceSliceCount
}

func newestPools(all []*resourceapi.ResourceSlice) map[pool]poolSlices {
	pools := map[pool]poolSlices{}
	for _, slice := range all {
		id := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		p := pools[id]
		switch generation := slice.Spec.Pool.Generation; {
		case generation > p.generation || p.slices == nil:
			pools[id] = poolSlices{generation, []*resourceapi.ResourceSlice{slice}}
		case generation == p.generation:
			p.slices = append(p.slices, slice)
			pools[id] = p
		}
	}
	return pools
}

// IncompleteNodes returns the nodes of which slices of the driver's pool are missing, as while they
// are being replaced, in order of their names. The scheduler allocates none of their devices.
func (f *Fleet) IncompleteNodes() []string {
	var nodes []string
	for node, all := range f.published {
		for pool, newest := range newestPools(all) {
			if pool.driver == f.Driver && !newest.complete() {
				nodes = append(nodes, cmp.Or(node, pool.name))
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Holders returns the allocations of the GPU and its parts, with the device of each. It
// leaves out allocations with admin access.
func (g GPU) Holders() iter.Seq2[Device, Holder] {
	return func(yield func(Device, Holder) bool) {
		for _, d := range g.Devices {
			for _, h := range d.Holders {
				if !h.Admin() && !yield(d, h) {
					return
				}
			}
		}
	}
}

// Claims returns the number of claims that hold the GPU or a part of it.
func (g GPU) Claims() int {
	claims := map[types.UID]bool{}
	for _, h := range g.Holders() {
		claims[h.Claim.UID] = true
	}
	return len(claims)
}

// Taints returns the published taints of the device that keep pods away.
func (d Device) Taints() []resourceapi.DeviceTaint {
	if d.Published == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Published.Taints), func(t resourceapi.DeviceTaint) bool { return t.Effect == resourceapi.DeviceTaintEffectNone })
}

// Device returns a device with its holders. Published is nil if the newest slices of its pool
// do not have it. The pool must be the one of a node, which has the node's name.
func (f *Fleet) Device(id DeviceID) Device {
	for _, slice := range newestPools(f.published[id.Pool])[pool{id.Driver, id.Pool}].slices {
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == id.Device {
				return f.device(id, &slice.Spec.Devices[i])
			}
		}
	}
	return f.device(id, nil)
}
