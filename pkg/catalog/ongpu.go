// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// onGPU publishes the devices of one GPU, without the counters that they consume.
type onGPU struct {
	Catalog
	node  gpu.Node
	links kind.NVLink
	gpu   use.GPU
	held  Held
	// cut is set if the GPU is offered in parts, and fixed if nothing else is offered.
	cut, fixed bool
	// parts are the MIG devices that are offered or held, with their counters.
	parts    []part
	counters []counter
}

func (c Catalog) onGPU(node gpu.Node, links neighbourhood, g gpu.GPU, cut bool, held Held) onGPU {
	o := onGPU{Catalog: c, node: node, links: links.linksOf(g.Address), gpu: use.GPU{GPU: g, Conditions: c.inputs.Conditions[g.Address]}, held: held, cut: cut}
	o.parts, o.counters = c.parts(g, cut, held)
	// Only held devices are published if it is not known how the GPU should be offered.
	unknown := c.inputs.HeldOnly || c.inputs.Offer.Partitions() && !c.inputs.MIG.Static && c.inputs.Partitions.lacks(g.Address)
	o.fixed = unknown || c.fixed(g, cut)
	return o
}

// whole returns the whole GPU, if it is published. A GPU whose partitions are fixed is not,
// unless claims hold it. Neither is one with partitions of an earlier layout that claims
// hold, in a cluster without counters that would exclude them.
func (o onGPU) whole(name kind.Name) []resourceapi.Device {
	if _, taken := o.held[name]; !taken && (o.fixed || len(o.parts) > 0 && !o.inputs.MIG.Static && o.inputs.NoCounters) {
		return nil
	}
	f := o.inputsOf(name)
	// The MIG mode varies if claims switch it.
	f.MIGModeVaries = !o.inputs.MIG.Static && (o.cut || len(o.parts) > 0)
	withdrawn := o.withdrawnShare(name)
	if o.fixed {
		withdrawn = v1alpha1.WithdrawnGPU
	}
	return []resourceapi.Device{o.device(name, f, o.inputs.Shares.amounts(name.Kind, o.gpu.GPU, o.shared(name)), withdrawn)}
}

// units returns the device of which claims take units, if it is offered or held. A GPU
// whose partitions are fixed offers none.
func (o onGPU) units(name kind.Name) []resourceapi.Device {
	_, taken := o.held[name]
	amounts := o.unitAmounts(name.Kind, o.gpu.GPU)
	offered := !o.fixed && o.inputs.Offer.Has(name.Kind) && !o.inputs.NoCounters && name.Kind.Check(o.gpu.GPU, amounts) == nil
	if o.inputs.Exclusive || !offered && !taken {
		return nil
	}
	withdrawn := ""
	if !offered {
		withdrawn = name.Kind.Offer()
	}
	return []resourceapi.Device{o.device(name, o.inputsOf(name), amounts, withdrawn)}
}

// partitions returns the MIG devices. Partitions made on demand have the product and the
// place on request only: a node can have a hundred of them.
func (o onGPU) partitions() []resourceapi.Device {
	var devices []resourceapi.Device
	for _, p := range o.parts {
		name := p.name(o.gpu.GPU)
		f := o.inputsOf(name)
		f.UUID, f.All = p.uuid, o.inputs.MIG.AllAttributes
		f.Located = (o.fixed || o.inputs.MIG.Static) && o.inputs.Selection.Level != kind.LevelLean
		d := o.device(name, f, kind.Amounts{Memory: o.memory(name, o.shared(name))}, o.withdrawnShare(name))
		if p.withdrawn {
			d.Taints = o.taints(o.gpu, name, use.Alone, name.Kind.Offer())
		}
		devices = append(devices, d)
	}
	return devices
}

// device returns a device for publishing.
func (o onGPU) device(name kind.Name, f kind.Inputs, a kind.Amounts, withdrawn string) resourceapi.Device {
	d := resourceapi.Device{
		Name:       name.String(),
		Attributes: o.inputs.Selection.Published(name.Kind.Attributes(f)),
		Capacity:   name.Kind.Capacities(a),
		Taints:     o.taints(o.gpu, name, o.sharing(name), withdrawn),
	}
	if shared := o.shared(name); shared {
		d.AllowMultipleAllocations = &shared
	}
	return d
}

// inputsOf returns the inputs for the attributes of a device.
func (o onGPU) inputsOf(name kind.Name) kind.Inputs {
	f := kind.Inputs{Node: o.node, GPU: o.gpu.GPU, NVLink: o.links, Profile: name.Profile, Lists: o.inputs.ListAttributes}
	o.inputs.Shares.limit(&f, o.gpu, name, o.sharing(name))
	return f
}

// sharing returns how processes share a device.
func (o onGPU) sharing(name kind.Name) use.Sharing {
	switch {
	case name.Kind.HasUnits():
		return unitSharing(name.Kind)
	case !o.shared(name):
		return use.Alone
	case o.inputs.Shares.byMPS(o.gpu.GPU):
		return use.ByMPS
	default:
		return use.Plain
	}
}

// unitSharing returns how the processes of units share the GPU.
func unitSharing(k kind.Kind) use.Sharing {
	if k.NeedsMPS() {
		return use.ByMPS
	}
	return use.TimeSlices
}

// unitAmounts returns the amounts of a GPU that claims take in units.
func (c Catalog) unitAmounts(k kind.Kind, g gpu.GPU) kind.Amounts {
	return c.inputs.Shares.limits(k, c.inputs.Shares.Memory(g, true))
}

// shared reports whether several claims can have a device, as units or as shares. One whose
// memory is unknown or below two steps has no shares: with no capacity to consume, any
// number of claims would fit.
func (o onGPU) shared(name kind.Name) bool {
	all := o.memory(name, true)
	return name.Kind.HasUnits() || (o.inputs.Offer.Share() && o.admitsShares(o.gpu.GPU) || o.held[name]) && !o.inputs.Exclusive && all.CmpInt64(2*MemoryStep) >= 0
}

// memory returns the memory of a device that claims can use.
func (o onGPU) memory(name kind.Name, shared bool) resource.Quantity {
	if info, _, partition := name.FindIn(o.gpu.MIG); partition {
		return o.inputs.Shares.PartitionMemory(o.gpu.GPU, info, shared)
	}
	return o.inputs.Shares.Memory(o.gpu.GPU, shared)
}

// withdrawnShare returns [v1alpha1.OfferShare] for a device that is shareable only
// because claims hold shares of it. It returns "" for other devices. It returns ""
// as well if the compute mode does not admit shares, because that has its own
// taint.
func (o onGPU) withdrawnShare(name kind.Name) string {
	if !o.shared(name) || o.inputs.Offer.Share() || !o.admitsShares(o.gpu.GPU) {
		return ""
	}
	return v1alpha1.OfferShare
}
