// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// The values of a [ShareOffer] that the agent uses unless its flags say otherwise, in bytes.
const (
	// DefaultSmallestShare is twice the context of a process with all 132 SMs of an H200.
	DefaultSmallestShare = 1 << 30
	// DefaultServerMemory is more than any server was seen to use: 66 MiB on an H200 with
	// release 580 and 1 to 47 clients, 36 on an A100 with 615, 25 to 27 on a V100
	// (github.com/nebuly-ai/nos/issues/39). NVIDIA publishes no figure.
	DefaultServerMemory = 80 << 20
)

// ShareOffer configures the shares that a node offers of its GPUs and MIG devices.
type ShareOffer struct {
	// MPS reports whether the node runs MPS daemons. They limit shares to their memory
	// and compute on GPUs that support it.
	MPS bool
	// ComputeOvercommit is the factor by which the published compute of a GPU exceeds
	// its multiprocessors. It is 1 or more; 0 means 1. One share gets at most all of
	// the multiprocessors.
	ComputeOvercommit float64
	// Smallest is the least memory of a share, in bytes. It is rounded up to
	// whole steps of [MemoryStep]; 0 means one.
	Smallest int64
	// Units are the slots and seats of a GPU.
	Units kind.Numbers
	// ServerMemory is the memory that the MPS server of a device uses, in bytes.
	ServerMemory uint64
}

// CheckSmallestShare returns an error unless a smallest share can have the memory.
func CheckSmallestShare(memory resource.Quantity) error {
	if bytes, exact := memory.AsInt64(); !exact || bytes <= 0 || bytes%MemoryStep != 0 {
		return fmt.Errorf("%s: %w: want whole Mi, such as 1Gi", &memory, gpu.ErrInvalid)
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

// Share returns the share that an allocation consumes of a device of the kind. all is the
// memory of the device, from [ShareOffer.Memory] or [ShareOffer.PartitionMemory]. The error
// for a share that the scheduler cannot have allocated under this offer wraps
// [gpu.ErrInvalid].
func (o ShareOffer) Share(k kind.Kind, all resource.Quantity, consumed kind.Consumed) (kind.Share, error) {
	return k.Consume(o.limits(k, all), consumed)
}

// limits returns the amounts of a device of the kind with the memory.
func (o ShareOffer) limits(k kind.Kind, all resource.Quantity) kind.Amounts {
	return kind.Amounts{
		Memory: all, Smallest: o.smallest(all), Step: *resource.NewQuantity(MemoryStep, resource.BinarySI),
		Units: int64(o.Units.Of(k)), MPS: o.MPS,
	}
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
		o.Smallest = max(o.Smallest, clientMemory(all.Value()/MemoryStep)*MemoryStep)
	}
	return o.smallest(all)
}

// clientMemory returns the memory of one of the most MPS clients of a device, in steps.
//
// It is rounded down, so that as many shares fit as MPS admits clients. The remainder is smaller than
// the memory of one client, so no further client fits, unless the device is tiny.
func clientMemory(steps int64) int64 {
	if steps < gpu.MPSMaxClients*gpu.MPSMaxClients {
		return (steps + gpu.MPSMaxClients - 1) / gpu.MPSMaxClients
	}
	return steps / gpu.MPSMaxClients
}

// byMPS reports whether MPS limits shares of the GPU and of its parts.
func (o ShareOffer) byMPS(g gpu.GPU) bool {
	return o.MPS && g.MPSLimits()
}

// admitsShares reports whether the compute mode of the GPU admits shares: a GPU in
// ExclusiveProcess runs several processes only as clients of MPS.
func (c Catalog) admitsShares(g gpu.GPU) bool {
	exclusive := func(p use.Problem) bool { return p.TaintValue == v1alpha1.ComputeModeTaintExclusive }
	return c.inputs.Shares.byMPS(g) || !slices.ContainsFunc(use.Check(use.GPU{GPU: g}, false, kind.Whole(g.Address), use.Plain), exclusive)
}

// limit sets how processes that share a device are limited.
func (o ShareOffer) limit(f *kind.Inputs, g use.GPU, device kind.Name, sharing use.Sharing) {
	if sharing == use.ByMPS && !o.byMPS(f.GPU) {
		sharing = use.Plain // a device that is no longer offered
	}
	f.Sharing, f.Memory, f.Compute = v1alpha1.SharedByNone, v1alpha1.EnforcementNone, v1alpha1.EnforcementNone
	if sharing == use.ByMPS {
		f.Sharing = v1alpha1.SharedByMPS
	}
	if sharing != use.Alone {
		f.Memory, f.Compute = g.Enforcement(device, sharing)
	}
}

// amounts returns the amounts that a whole GPU offers to claims. shared reports whether
// claims can take shares of it. The memory of a GPU without shares is NVML's total, as
// NVIDIA's driver publishes it: no amount is taken of it, and selectors that were written
// for that driver compare with it.
func (o ShareOffer) amounts(k kind.Kind, g gpu.GPU, shared bool) kind.Amounts {
	all := o.Memory(g, shared)
	a := o.limits(k, all)
	if !shared && !all.IsZero() {
		a.Memory = wholeSteps(g.MemoryBytes)
	}
	a.Shared, a.Smallest, a.Compute = shared, o.smallestOf(g, all), int64(math.Round(kind.WholeCompute*o.ComputeOvercommit))
	return a
}
