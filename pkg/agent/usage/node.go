// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Node has the capacities of a node that claims can hold.
type Node struct {
	// Published are the capacities of the published devices by name.
	Published map[string]kind.Capacities
	GPUs      map[gpu.PCIAddress]GPU
}

// GPU has the facts about a GPU that do not change with its use.
type GPU struct {
	// MemoryBytes is the usable memory, and Multiprocessors the number of SMs.
	MemoryBytes     uint64
	Multiprocessors int
	MIG             gpu.MIG
	Healthy         bool
}

// NewGPU returns the facts about a GPU as last scanned.
func NewGPU(g gpu.GPU, healthy bool) GPU {
	return GPU{MemoryBytes: g.MemoryBytes - min(g.ReservedBytes, g.MemoryBytes), Multiprocessors: g.Multiprocessors, MIG: g.MIG, Healthy: healthy}
}

// Stranded returns the stranded part of each published GPU, by the name of its device. It
// leaves out GPUs with shares of unknown size.
func Stranded(published []resourceslice.Slice, held []claim.Claim) map[string]catalog.Stranded {
	taken, unknown := catalog.Taken{}, map[string]bool{}
	for _, c := range held {
		for _, d := range c.Devices {
			taken.Add(d.Name.String(), d.Terms.Share == nil, d.Terms.Memory())
			if d.Terms.IsUnknown() {
				unknown[kind.Whole(d.Name.Address).String()] = true
			}
		}
	}
	all := catalog.StrandedOf(published, taken)
	maps.DeleteFunc(all, func(gpu string, _ catalog.Stranded) bool { return unknown[gpu] })
	return all
}

// promise is what a claim has of a device by its allocation.
type promise struct {
	// memory in bytes, compute from 0 to 1 of the GPU.
	memory  uint64
	compute float64
	// gpus is the part of a GPU that the claim is charged for.
	gpus float64
}

// promised returns the memory, the compute and the part of a GPU that a device
// promises. known is false if no record contains that, or if the device is not
// published yet. Time slices promise no compute, but are charged for: their slots keep
// others out.
func (n Node) promised(d claim.Device) (p promise, known bool) {
	all := amount(n.Published[d.Name.String()], v1alpha1.CapacityMemory)
	switch t := d.Terms; {
	case d.Name.Kind.Scope() == kind.ScopeNode, t.IsUnknown():
		return promise{}, false
	case d.Name.Kind.Takes() == kind.TakesSlots:
		slots := amount(n.Published[d.Name.String()], d.Name.Kind.Units().Capacity)
		return promise{memory: t.Memory(), gpus: ratio(uint64(max(t.Slots, 1)), slots)}, slots > 0
	case t.Share != nil:
		return promise{t.Share.Memory, float64(t.Share.Compute) / kind.WholeCompute, n.part(d, t.Share.Memory)}, true
	case d.Name.IsPartition():
		return promise{all, n.multiprocessors(d), n.part(d, all)}, all > 0
	default:
		return promise{all, 1, 1}, all > 0
	}
}

// part returns the part of the memory of a device's GPU. A GPU whose MIG devices are fixed
// is not published itself.
func (n Node) part(d claim.Device, memory uint64) float64 {
	if all := amount(n.Published[kind.Whole(d.Name.Address).String()], v1alpha1.CapacityMemory); all > 0 {
		return ratio(memory, all)
	}
	return ratio(memory, n.GPUs[d.Name.Address].MemoryBytes)
}

// multiprocessors returns the part of the GPU's multiprocessors that a MIG device has.
func (n Node) multiprocessors(d claim.Device) float64 {
	g := n.GPUs[d.Name.Address]
	profile, _, _ := d.Name.FindIn(g.MIG)
	return ratio(uint64(profile.Multiprocessors), uint64(g.Multiprocessors))
}

func amount(capacities kind.Capacities, name resourceapi.QualifiedName) uint64 {
	value := capacities[name].Value
	return uint64(max(value.Value(), 0))
}

// ratio returns the part of the whole, at most 1; 0 if the whole is not known.
func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return min(float64(part)/float64(whole), 1)
}
