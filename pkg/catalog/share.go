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

// The values of a [ShareOffer] that the agent uses unless its flags say otherwise, in bytes.
const (
	// DefaultSmallestShare is a context, and as much again to compute with.
	DefaultSmallestShare = 1 << 30
	// DefaultServerMemory is twice the 25 to 27 MiB that nvidia-smi showed of a server on a
	// V100 and others (github.com/nebuly-ai/nos/issues/39): NVIDIA publishes no figure. It
	// is 0.4 % of the smallest GPU with MPS.
	DefaultServerMemory = 64 << 20
)

// ShareOffer configures the shares that a node offers of its GPUs and MIG devices.
type ShareOffer struct {
	// MPS reports whether the node runs MPS daemons, which limit shares to their
	// memory and compute on GPUs that support it.
	MPS bool
	// ComputeOvercommit is the factor by which the published compute of a GPU
	// exceeds its multiprocessors, 1 or more; 0 means 1. One share gets at most all
	// of the multiprocessors.
	ComputeOvercommit float64
	// Smallest is the least memory of a share, in bytes. It is rounded up to
	// whole steps of [MemoryStep]; 0 means one.
	Smallest int64
	// Seats is the number of equal seats of a GPU, at most [MaxSeats]; 0 means
	// [DefaultSeats].
	Seats int
	// ServerMemory is the memory that the MPS server of a device uses, in bytes.
	ServerMemory uint64
}

// CheckSmallestShare returns an error unless a smallest share can have the memory: whole
// steps, and more than the context of a process, in bytes.
func CheckSmallestShare(memory resource.Quantity, context uint64) error {
	bytes, exact := memory.AsInt64()
	switch {
	case !exact || bytes <= 0 || bytes%MemoryStep != 0:
		return fmt.Errorf("%s: %w: want whole Mi, such as 1Gi", &memory, gpu.ErrInvalid)
	case uint64(bytes) <= context:
		return fmt.Errorf("%s: %w: want more than %s, the memory of a process' context, which comes out of its share", &memory, gpu.ErrInvalid, resource.NewQuantity(int64(context), resource.BinarySI))
	}
	return nil
}

// maxOvercommit is more than any number of shares could use.
const maxOvercommit = 100

// CheckComputeOvercommit returns an error unless the factor is possible.
func CheckComputeOvercommit(factor float64) error {
	if factor >= 1 && factor <= maxOvercommit { // NaN is neither
		return nil
	}
	return fmt.Errorf("%v: %w: want a number from 1 to %d", factor, gpu.ErrInvalid, maxOvercommit)
}

// Share is the capacity that an allocation takes of a GPU or of a MIG device.
type Share struct {
	// Whole is true for an allocation of all of the memory.
	Whole bool
	// Memory in bytes.
	Memory uint64
	// Compute in percent of the multiprocessors; 0 if the claim requests none.
	Compute int
}

// Share returns the share that an allocation consumes of a device. all is the memory
// of the device, from [ShareOffer.Memory] or [ShareOffer.PartitionMemory]. An
// allocation that consumes nothing has the whole device. The error for a share that
// the scheduler cannot have allocated under this offer wraps [gpu.ErrInvalid].
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
			return Share{}, fmt.Errorf("%w: %s of memory is not a multiple of 1Mi", gpu.ErrInvalid, memory.String())
		}
		share.Memory, share.Whole = uint64(memory.Value()), memory.Cmp(all) == 0
	}
	compute := consumed[v1alpha1.CapacityCompute]
	percent, exact := compute.AsInt64()
	if !exact || percent < 0 || percent > kind.WholeCompute {
		return Share{}, fmt.Errorf("%w: %s percent of compute; want a whole number from 0 to %d", gpu.ErrInvalid, compute.String(), kind.WholeCompute)
	}
	share.Compute = int(percent)
	return share, nil
}

// smallest returns the smallest share of a device with the memory.
func (o ShareOffer) smallest(all resource.Quantity) resource.Quantity {
	steps := max(1, (o.Smallest+MemoryStep-1)/MemoryStep)
	smallest := *resource.NewQuantity(steps*MemoryStep, resource.BinarySI)
	if smallest.Cmp(all) > 0 {
		return all
	}
	return smallest
}

// smallestOf returns the smallest share that is published for a GPU with the memory:
// that of the offer, but not less than the memory of one MPS client. MPS admits
// [gpu.MPSMaxClients] clients per GPU and a share may have as many as its memory
// allows, at least one; the lower bound keeps the sum over all shares within MPS's
// limit.
func (o ShareOffer) smallestOf(g gpu.GPU, all resource.Quantity) resource.Quantity {
	if o.byMPS(g) {
		o.Smallest = max(o.Smallest, (all.Value()+gpu.MPSMaxClients-1)/gpu.MPSMaxClients)
	}
	return o.smallest(all)
}

// byMPS reports whether MPS limits shares of the GPU and of its parts.
func (o ShareOffer) byMPS(g gpu.GPU) bool {
	return use.State{GPU: g, MPS: o.MPS}.HoldsSharesByMPS()
}

// shared reports whether claims can take shares of the named device of the GPU. A
// device whose memory is unknown or below two steps is not shareable: with no
// capacity to consume, any number of claims would fit.
func (c Catalog) shared(g gpu.GPU, name kind.Name, all resource.Quantity, held Held) bool {
	return (c.Offer.Share && c.admitsShares(g) || held[name]) && !c.Exclusive && all.CmpInt64(2*MemoryStep) >= 0
}

// admitsShares reports whether the compute mode of the GPU admits shares: a GPU in
// ExclusiveProcess runs several processes only as clients of MPS.
func (c Catalog) admitsShares(g gpu.GPU) bool {
	device := kind.Whole(g.Address)
	exclusive := func(p use.Problem) bool { return p.TaintValue == v1alpha1.ComputeModeTaintExclusive }
	return c.Shares.byMPS(g) || !slices.ContainsFunc(use.Check(use.State{GPU: g}, use.Use{Device: device, Sharing: use.Plain}), exclusive)
}

// describe sets how shares of a device are limited, if claims can take shares of it.
func (o ShareOffer) describe(f *kind.Inputs, device kind.Name, shared bool) {
	f.Sharing, f.Memory, f.Compute = v1alpha1.SharedByNone, v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if !shared {
		return
	}
	u := use.Use{Device: device, Sharing: use.Plain}
	if o.byMPS(f.GPU) {
		f.Sharing, u.Sharing = v1alpha1.SharedByMPS, use.ByMPS
	}
	f.Memory, f.Compute = use.Enforcement(f.GPU, u)
}

// amounts returns the amounts that a GPU offers to claims. shared reports whether claims
// can take shares of it. The memory of a GPU without shares is NVML's total, as NVIDIA's
// driver publishes it: no amount is taken of it, and selectors that were written for that
// driver compare with it.
func (o ShareOffer) amounts(g gpu.GPU, shared bool) kind.Amounts {
	all := o.Memory(g, shared)
	published := all
	if !shared && !all.IsZero() {
		published = wholeSteps(g.MemoryBytes)
	}
	return kind.Amounts{
		Memory: published, Shared: shared, Smallest: o.smallestOf(g, all), Step: *resource.NewQuantity(MemoryStep, resource.BinarySI),
		Compute: int64(math.Round(kind.WholeCompute * o.ComputeOvercommit)),
	}
}
