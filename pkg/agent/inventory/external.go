// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// externalTime is how often external allocations are read while device plugins
// have, or could give, GPUs to pods: the kubelet reports no changes of them.
const externalTime = 10 * time.Second

// confirmTime is how long the kubelet must leave out an external allocation before it
// counts as ended. A kubelet that has just started lists no pods, or only static ones.
const confirmTime = 5 * time.Second

// ExternalSource reads external allocations: the GPUs and MIG devices of this node
// that device plugins have allocated to pods.
type ExternalSource interface {
	// ExternalAllocations returns all external allocations of the node.
	ExternalAllocations(ctx context.Context) ([]gpu.ExternalAllocation, error)
}

// external are the external allocations of the node.
type external struct {
	allocations []gpu.ExternalAllocation
	// missed are the allocations that the last read did not list. The value is the time of
	// the first read without it.
	missed map[gpu.ExternalAllocation]time.Time
}

// followExternal reads external allocations until ctx ends: once at the start,
// because pods keep the GPUs of a plugin that was removed, and then only while there
// is a plugin or such a pod.
func (i *Inventory) followExternal(ctx context.Context) {
	if i.o.External == nil {
		return
	}
	i.external.Follow(ctx, i.o.Clock, i.pluginSeen, i.confirmExternal, func(last external) time.Duration {
		switch {
		case len(last.missed) > 0:
			return confirmTime
		case i.externalMayChange():
			return externalTime
		}
		return 0
	})
}

// externalMayChange reports whether external allocations may change: there is a
// plugin or an external allocation, or no read has succeeded yet, or the last one failed.
func (i *Inventory) externalMayChange() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := i.external.Last()
	return i.plugin || len(last.Value.allocations) > 0 || !last.Known() || last.Err != nil
}

// confirmExternal returns the listed allocations, and known ones that are missed for less than
// [confirmTime].
func (i *Inventory) confirmExternal(ctx context.Context, last external) (external, error) {
	listed, err := i.o.External.ExternalAllocations(ctx)
	now, missed := i.o.Clock.Now(), map[gpu.ExternalAllocation]time.Time{}
	all := slices.Clone(listed)
	for _, allocation := range last.allocations {
		if slices.Contains(listed, allocation) {
			continue
		}
		since, again := last.missed[allocation]
		if !again {
			since = now
		}
		if now.Sub(since) < confirmTime {
			missed[allocation] = since
			all = append(all, allocation)
		}
	}
	slices.SortFunc(all, gpu.CompareExternal)
	return external{all, missed}, err
}

// acceptExternal returns the listed allocations.
func (i *Inventory) acceptExternal(ctx context.Context, _ external) (external, error) {
	listed, err := i.o.External.ExternalAllocations(ctx)
	return external{allocations: listed}, err
}

// RefreshExternal reads external allocations if there may be any. Call it before a claim gets
// a GPU: a kubelet that prepares claims knows its pods. If the read fails, the last result stays
// valid.
func (i *Inventory) RefreshExternal(ctx context.Context) {
	if i.o.External != nil && i.externalMayChange() {
		i.external.Refresh(ctx, i.acceptExternal)
	}
}

// externalRead writes the state after a read.
func (i *Inventory) externalRead(ctx context.Context, before, now source.Last[external]) {
	if !slices.Equal(before.Value.allocations, now.Value.allocations) {
		klog.FromContext(ctx).Info("GPUs that pods have through device plugins", "devices", now.Value.allocations)
	}
	i.write()
}

// SetDevicePlugin sets whether the node has a device plugin that offers GPUs.
func (i *Inventory) SetDevicePlugin(present bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if present && !i.plugin {
		notify.Wake(i.pluginSeen)
	}
	i.plugin = present
}
