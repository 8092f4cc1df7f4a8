// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// onGPU publishes the devices of one GPU, without the counters that they consume.
type onGPU struct {
	Catalog
	node  gpu.Node
	links neighbourhood
	gpu   gpu.GPU
	state use.State
	held  Held
	// cut is set if the GPU is offered in parts, and fixed if these are all that is offered.
	cut, fixed bool
	// parts are the MIG devices that are offered or held, with their counters.
	parts    []part
	counters []counter
}

func (c Catalog) on(node gpu.Node, links neighbourhood, g gpu.GPU, cut bool, held Held) onGPU {
	o := onGPU{Catalog: c, node: node, links: links, gpu: g, state: use.State{GPU: g, MPS: c.Shares.MPS}, held: held, cut: cut}
	o.parts, o.counters = c.parts(g, cut, held)
	// Only held devices are published if it is not known how the GPU should be offered.
	unknown := c.HeldOnly || c.Offer.Partitions() && !c.MIG.Static && c.Partitions.lacks(g.Address)
	o.fixed = unknown || c.fixed(g, cut)
	return o
}

// whole returns the whole GPU, if it is published. A GPU whose partitions are fixed is not,
// unless claims hold it. Neither is one with partitions of an earlier layout that claims
// hold, in a cluster without counters that would exclude them.
func (o onGPU) whole(k kind.Kind) []resourceapi.Device {
	name := kind.Name{Kind: k, Address: o.gpu.Address}
	if _, taken := o.held[name]; !taken && (o.fixed || len(o.parts) > 0 && !o.MIG.Static && o.NoCounters) {
		return nil
	}
	f := o.wholeInputs(k)
	// The MIG mode varies if claims switch it.
	f.MIGModeVaries = !o.MIG.Static && (o.cut || len(o.parts) > 0)
	shared := o.shared(o.gpu, name, o.Shares.Memory(o.gpu, true), o.held)
	withdrawn := o.withdrawnShare(o.gpu, shared)
	if o.fixed {
		withdrawn = v1alpha1.WithdrawnGPU
	}
	return o.device(name, f, o.Shares.amounts(k, o.gpu, shared), shared, o.sharing(o.gpu, shared), withdrawn)
}

// wholeInputs returns the inputs for the attributes of a whole GPU.
func (o onGPU) wholeInputs(k kind.Kind) kind.Inputs {
	name := kind.Name{Kind: k, Address: o.gpu.Address}
	shared := o.shared(o.gpu, name, o.Shares.Memory(o.gpu, true), o.held)
	f := kind.Inputs{Node: o.node, GPU: o.gpu, NVLink: o.links.of(o.gpu.Address), Lists: o.ListAttributes}
	o.Shares.describe(&f, name, o.sharing(o.gpu, shared))
	return f
}

// units returns the device of which claims take units, if it is offered or held. A GPU
// whose partitions are fixed offers none.
func (o onGPU) units(k kind.Kind) []resourceapi.Device {
	name := kind.Name{Kind: k, Address: o.gpu.Address}
	_, taken := o.held[name]
	amounts := o.unitAmounts(k, o.gpu)
	offered := !o.fixed && o.Offer.Has(k) && !o.NoCounters && k.Check(o.gpu, amounts) == nil
	if o.Exclusive || !offered && !taken {
		return nil
	}
	withdrawn := ""
	if !offered {
		withdrawn = k.Offer()
	}
	return o.device(name, o.unitInputs(k), amounts, true, unitSharing(k), withdrawn)
}

// unitInputs returns the inputs for the attributes of a device of which claims take units.
func (o onGPU) unitInputs(k kind.Kind) kind.Inputs {
	f := kind.Inputs{Node: o.node, GPU: o.gpu, Lists: o.ListAttributes}
	o.Shares.describe(&f, kind.Name{Kind: k, Address: o.gpu.Address}, unitSharing(k))
	return f
}

// unitAmounts returns the amounts of a GPU that claims take in units.
func (c Catalog) unitAmounts(k kind.Kind, g gpu.GPU) kind.Amounts {
	return c.Shares.limits(k, c.Shares.Memory(g, true))
}

// unitSharing returns how the processes of units share the GPU.
func unitSharing(k kind.Kind) use.Sharing {
	if k.NeedsMPS() {
		return use.ByMPS
	}
	return use.TimeSlices
}

// partitions returns the MIG devices.
func (o onGPU) partitions() []resourceapi.Device {
	var devices []resourceapi.Device
	for _, p := range o.parts {
		name := p.name(o.gpu)
		f := o.partInputs(p)
		f.All = o.MIG.AllAttributes
		// Partitions made on demand have the product and the place on request only: a node
		// can have a hundred of them.
		f.Located = (o.fixed || o.MIG.Static) && o.Selection.Level != kind.LevelLean
		shared := o.sharedPart(p)
		sharing, withdrawn := o.sharing(o.gpu, shared), o.withdrawnShare(o.gpu, shared)
		if p.withdrawn {
			sharing, withdrawn = use.Alone, name.Kind.Offer()
		}
		amounts := kind.Amounts{Memory: o.Shares.PartitionMemory(o.gpu, p.profile, shared)}
		devices = append(devices, o.device(name, f, amounts, shared, sharing, withdrawn)...)
	}
	return devices
}

// partInputs returns the inputs for the attributes of a MIG device.
func (o onGPU) partInputs(p part) kind.Inputs {
	f := kind.Inputs{GPU: o.gpu, Profile: p.profile.Profile, UUID: p.uuid, Lists: o.ListAttributes}
	o.Shares.describe(&f, p.name(o.gpu), o.sharing(o.gpu, o.sharedPart(p)))
	return f
}

// sharedPart reports whether claims can take shares of a MIG device.
func (o onGPU) sharedPart(p part) bool {
	return o.shared(o.gpu, p.name(o.gpu), o.Shares.PartitionMemory(o.gpu, p.profile, true), o.held)
}

// device returns a device for publishing.
func (o onGPU) device(name kind.Name, f kind.Inputs, a kind.Amounts, shared bool, sharing use.Sharing, withdrawn string) []resourceapi.Device {
	d := resourceapi.Device{
		Name:       name.String(),
		Attributes: o.Selection.Published(name.Kind.Attributes(f)),
		Capacity:   name.Kind.Capacities(a),
		Taints:     o.taints(o.state, name, sharing, withdrawn),
	}
	if shared {
		d.AllowMultipleAllocations = &shared
	}
	return []resourceapi.Device{d}
}
