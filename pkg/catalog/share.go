// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// ShareOffer is how a node offers shares of its GPUs and MIG devices, where it
// does.
type ShareOffer struct {
	// MPS says that somebody on the node holds shares to what they were given,
	// by CUDA's Multi-Process Service, on GPUs on which it can.
	MPS bool
	// ComputeOvercommit is how many times the multiprocessors of a GPU are
	// promised, 1 or more; 0 means 1. One share gets no more than all of them.
	ComputeOvercommit float64
	// Smallest is the least memory of a share, in bytes. It is rounded up to
	// whole steps of [MemoryStep]; 0 means one.
	Smallest int64
	// ServerMemory is what the MPS server of a device takes of its memory, in
	// bytes.
	ServerMemory uint64
}

// Share is what an allocation takes of a GPU or of a MIG device.
type Share struct {
	// Whole is an allocation of all of the memory, which leaves none for
	// others.
	Whole bool
	// Memory in bytes: all of the device's where Whole.
	Memory uint64
	// Compute in percent of the multiprocessors; 0 where the claim named none.
	Compute int
}

// Share reads what an allocation consumes of a device with so much memory, which
// is that of [ShareOffer.Memory] or [ShareOffer.PartitionMemory]. Nothing consumed
// means a device that is allocated exclusively. The error for what the scheduler
// would not have granted on the devices of this offer wraps [gpu.ErrInvalid].
func (o ShareOffer) Share(all resource.Quantity, consumed map[resourceapi.QualifiedName]resource.Quantity) (Share, error) {
	share := Share{Whole: true, Memory: uint64(all.Value())}
	if memory, limited := consumed[v1alpha1.CapacityMemory]; limited {
		smallest := o.smallest(all)
		switch {
		case memory.Cmp(all) > 0:
			return Share{}, fmt.Errorf("%w: %s of memory, and the device has %s", gpu.ErrInvalid, memory.String(), all.String())
		case memory.Cmp(smallest) < 0:
			return Share{}, fmt.Errorf("%w: %s of memory; the smallest share on this node has %s", gpu.ErrInvalid, memory.String(), smallest.String())
		case memory.Value()%MemoryStep != 0:
			return Share{}, fmt.Errorf("%w: %s of memory is no multiple of 1Mi", gpu.ErrInvalid, memory.String())
		}
		share.Memory, share.Whole = uint64(memory.Value()), memory.Cmp(all) == 0
	}
	compute := consumed[v1alpha1.CapacityCompute]
	percent, exact := compute.AsInt64()
	if !exact || percent < 0 || percent > wholeCompute {
		return Share{}, fmt.Errorf("%w: %s percent of compute; want a whole number from 0 to %d", gpu.ErrInvalid, compute.String(), wholeCompute)
	}
	share.Compute = int(percent)
	return share, nil
}

// smallest is the least that is taken of a device with so much memory.
func (o ShareOffer) smallest(all resource.Quantity) resource.Quantity {
	steps := max(1, (o.Smallest+MemoryStep-1)/MemoryStep)
	smallest := *resource.NewQuantity(steps*MemoryStep, resource.BinarySI)
	if smallest.Cmp(all) > 0 {
		return all
	}
	return smallest
}

// smallestOf returns the least that is published for requests of a GPU with so much
// memory: that of the offer, and a part of the memory for each client that MPS
// admits at a time. A share has as many clients as its memory has such parts, and
// one at least, so the scheduler gives away no more clients than there are.
func (o ShareOffer) smallestOf(g gpu.GPU, all resource.Quantity) resource.Quantity {
	if o.byMPS(g) {
		o.Smallest = max(o.Smallest, (all.Value()+gpu.MPSMaxClients-1)/gpu.MPSMaxClients)
	}
	return o.smallest(all)
}

// byMPS reports whether shares of the GPU, and of its parts, are held by MPS.
func (o ShareOffer) byMPS(g gpu.GPU) bool {
	return use.Facts{GPU: g, MPS: o.MPS}.HoldsSharesByMPS()
}

// shared reports whether claims can take shares of the device of the GPU with
// the name and so much memory. One whose memory is unknown or below two steps
// has nothing that could be divided: with no capacity to consume, any number of
// claims would fit.
func (c Catalog) shared(g gpu.GPU, name string, all resource.Quantity, held Held) bool {
	return (c.Offer.Share && c.admitsShares(g) || held[name]) && !c.Exclusive && all.CmpInt64(2*MemoryStep) >= 0
}

// admitsShares reports whether the compute mode of the GPU admits shares: a GPU in
// ExclusiveProcess runs several processes only as clients of MPS.
func (c Catalog) admitsShares(g gpu.GPU) bool {
	device := kind.Whole(g.Address)
	exclusive := func(p use.Problem) bool { return p.TaintValue == v1alpha1.ComputeModeTaintExclusive }
	return c.Shares.byMPS(g) || !slices.ContainsFunc(use.Check(use.Facts{GPU: g}, use.Use{Device: device, Sharing: use.Plain}), exclusive)
}

// describe says what holds shares of a GPU, or of a partition of it, and how
// firmly. A container of an MPS share can drop the variables that limit it, and
// then has what the daemon allows its largest client.
func (o ShareOffer) describe(f *kind.Facts, shared bool) {
	f.Sharing, f.Enforcement = v1alpha1.SharedByNone, string(v1alpha1.EnforcementNone)
	if shared && o.byMPS(f.GPU) {
		f.Sharing, f.Enforcement = v1alpha1.SharedByMPS, string(v1alpha1.EnforcementCooperative)
	}
}

// capacities gives the capacities of a GPU, with the policies that make them
// consumable if claims can take shares of it. Where the capacity itself is the
// maximum of a request, its range states none.
func (o ShareOffer) capacities(g gpu.GPU, shared bool) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	all := o.Memory(g, shared)
	if all.IsZero() {
		return nil
	}
	memory := resourceapi.DeviceCapacity{Value: all}
	compute := resourceapi.DeviceCapacity{Value: number(wholeCompute)}
	if shared {
		memory.RequestPolicy = policy(all, o.smallestOf(g, all), *resource.NewQuantity(MemoryStep, resource.BinarySI))
		compute.RequestPolicy = policy(number(0), number(0), number(1))
		if promised := int64(math.Round(wholeCompute * o.ComputeOvercommit)); promised > wholeCompute {
			compute.Value = number(promised)
			most := number(wholeCompute)
			compute.RequestPolicy.ValidRange.Max = &most
		}
	}
	return map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		v1alpha1.CapacityMemory:  memory,
		v1alpha1.CapacityCompute: compute,
	}
}

func policy(standard, minimum, step resource.Quantity) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{
		Default:    &standard,
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &minimum, Step: &step},
	}
}

func number(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
