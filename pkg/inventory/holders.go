// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// HeldFunc returns the names of the devices that claims hold, and for each whether
// its allocation has a share ID. It must not wait for a scan.
type HeldFunc func(ctx context.Context) (map[string]bool, error)

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
	readHeld                    HeldFunc
	readSwitched, readExclusive ModesFunc
	readKept                    KeptFunc

	mu                          sync.Mutex
	lastHeld, lastKept          map[string]bool
	lastSwitched, lastExclusive map[gpu.PCIAddress]bool
}

// NewHolders returns the holders that the functions read.
func NewHolders(held HeldFunc, switched, exclusive ModesFunc, kept KeptFunc) *Holders {
	return &Holders{readHeld: held, readSwitched: switched, readExclusive: exclusive, readKept: kept}
}

// Held returns the names of the devices that claims hold, and for each whether its
// allocation has a share ID.
func (h *Holders) Held(ctx context.Context) map[string]bool {
	held, err := h.readHeld(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the devices that claims hold, will retry")
		return h.lastHeld
	}
	h.lastHeld = held
	return held
}

// switched returns the GPUs whose MIG mode claims have switched on.
func (h *Holders) switched(ctx context.Context) map[gpu.PCIAddress]bool {
	switched, err := h.readSwitched(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the MIG modes that claims use, will retry")
		return h.lastSwitched
	}
	h.lastSwitched = switched
	return switched
}

// exclusive returns the GPUs that claims have put into EXCLUSIVE_PROCESS.
func (h *Holders) exclusive(ctx context.Context) map[gpu.PCIAddress]bool {
	exclusive, err := h.readExclusive(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the compute modes that claims use, will retry")
		return h.lastExclusive
	}
	h.lastExclusive = exclusive
	return exclusive
}

// kept returns the MIG devices that stay without claims.
func (h *Holders) kept(ctx context.Context) map[string]bool {
	kept, err := h.readKept(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the MIG devices without claims, will retry")
		return h.lastKept
	}
	h.lastKept = kept
	return kept
}
