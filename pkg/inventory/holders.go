// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// HeldFunc returns the names of the devices that claims hold, and for each whether
// its allocation has a share ID. It must not wait for a scan.
type HeldFunc func(ctx context.Context) (map[kind.Name]bool, error)

// ModesFunc returns the GPUs of which claims have changed a mode: switched on the MIG
// mode, or set the compute mode EXCLUSIVE_PROCESS. Every other mode is an
// administrator's.
type ModesFunc func(ctx context.Context) (map[gpu.PCIAddress]bool, error)

// KeptFunc returns the UUIDs of MIG devices that claims have made and that stay without
// claims.
type KeptFunc func(ctx context.Context) (map[string]bool, error)

// Holders reads what claims hold and have made of the GPUs. If that cannot be
// read, it returns what it read last.
type Holders struct {
	held                remembered[kind.Name]
	kept                remembered[string]
	switched, exclusive remembered[gpu.PCIAddress]
}

// remembered reads a set, and returns the last one if it cannot be read. failure is the
// log message.
type remembered[T comparable] struct {
	read    func(ctx context.Context) (map[T]bool, error)
	failure string

	mu   sync.Mutex
	last map[T]bool
}

func (r *remembered[T]) get(ctx context.Context) map[T]bool {
	now, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, r.failure)
		return r.last
	}
	r.last = now
	return now
}

// NewHolders returns the holders that the functions read.
func NewHolders(held HeldFunc, switched, exclusive ModesFunc, kept KeptFunc) *Holders {
	return &Holders{
		held:      remembered[kind.Name]{read: held, failure: "Cannot read the devices that claims hold, will retry"},
		kept:      remembered[string]{read: kept, failure: "Cannot read the MIG devices without claims, will retry"},
		switched:  remembered[gpu.PCIAddress]{read: switched, failure: "Cannot read the MIG modes that claims use, will retry"},
		exclusive: remembered[gpu.PCIAddress]{read: exclusive, failure: "Cannot read the compute modes that claims use, will retry"},
	}
}

// Held returns the names of the devices that claims hold, and for each whether its
// allocation has a share ID.
func (h *Holders) Held(ctx context.Context) map[kind.Name]bool { return h.held.get(ctx) }
