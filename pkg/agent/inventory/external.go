// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
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

// external is the state of reading external allocations.
type external struct {
	source ExternalSource // nil if external allocations are not read
	// reading holds an item during a read, so that there is one at a time: results
	// stay in order, and the kubelet refuses a client with more than a few
	// concurrent requests.
	reading chan struct{}
	seen    chan struct{} // has an item after a plugin has appeared on the node

	// Guarded by the inventory's mu.

	plugin bool // the node has a device plugin
	err    error
	// begun counts reads; answered is the number of the read with the current result.
	begun, answered int
	// missed are the allocations that the last read did not list. The value is the time of
	// the first read without it.
	missed map[gpu.ExternalAllocation]time.Time
}

func newExternal(source ExternalSource) external {
	return external{source: source, reading: make(chan struct{}, 1), seen: make(chan struct{}, 1)}
}

// followExternal reads external allocations until ctx ends: once at the start,
// because pods keep the GPUs of a plugin that was removed, and then only while there
// is a plugin or such a pod.
func (i *Inventory) followExternal(ctx context.Context) {
	if i.external.source == nil {
		i.setExternalKnown()
		return
	}
	pause := scanBackoff()
	for {
		ok := i.readExternal(ctx, (*external).confirm)
		i.setExternalKnown()
		var again <-chan time.Time
		switch {
		case !ok:
			again = i.clock.After(pause.Step())
		case i.externalMissed():
			pause, again = scanBackoff(), i.clock.After(confirmTime)
		case i.externalMayChange():
			pause, again = scanBackoff(), i.clock.After(externalTime)
		}
		select {
		case <-ctx.Done():
			return
		case <-i.external.seen:
		case <-again:
		}
	}
}

// setExternalKnown records that a read has ended, with whatever result.
func (i *Inventory) setExternalKnown() {
	i.mu.Lock()
	i.known.externalKnown = true
	i.mu.Unlock()
	i.write()
}

// externalMayChange reports whether external allocations may change: there is a
// plugin or an external allocation, or the last read failed.
func (i *Inventory) externalMayChange() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.external.plugin || len(i.known.external) > 0 || i.external.err != nil
}

// externalMissed reports whether the last read did not list an allocation that is not
// confirmed to have ended.
func (i *Inventory) externalMissed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.external.missed) > 0
}

// confirm returns the listed allocations, and known ones that are missed for less than
// [confirmTime].
func (e *external) confirm(known, listed []gpu.ExternalAllocation, now time.Time) []gpu.ExternalAllocation {
	missed, all := map[gpu.ExternalAllocation]time.Time{}, slices.Clone(listed)
	for _, allocation := range known {
		if slices.Contains(listed, allocation) {
			continue
		}
		since, again := e.missed[allocation]
		if !again {
			since = now
		}
		if now.Sub(since) < confirmTime {
			missed[allocation] = since
			all = append(all, allocation)
		}
	}
	e.missed = missed
	slices.SortFunc(all, func(a, b gpu.ExternalAllocation) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pod, b.Pod))
	})
	return all
}

// accept returns the listed allocations.
func (e *external) accept(_, listed []gpu.ExternalAllocation, _ time.Time) []gpu.ExternalAllocation {
	e.missed = nil
	return listed
}

// RefreshExternal reads external allocations if there may be any. Call it before a
// claim gets a GPU: a kubelet that prepares claims knows its pods. Concurrent calls share a read that began after all of them. If
// the read fails, the last result stays valid.
func (i *Inventory) RefreshExternal(ctx context.Context) {
	if i.external.source != nil && i.externalMayChange() {
		i.readExternal(ctx, (*external).accept)
	}
}

// readExternal reads external allocations, unless a read that began after the call
// has ended meanwhile. judge returns the allocations of the node, given the known and the
// listed ones. It reports whether the read succeeded.
func (i *Inventory) readExternal(ctx context.Context, judge func(e *external, known, listed []gpu.ExternalAllocation, now time.Time) []gpu.ExternalAllocation) bool {
	i.mu.Lock()
	before := i.external.begun
	i.mu.Unlock()
	select {
	case i.external.reading <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-i.external.reading }()
	if since, ok := i.readSince(before); since {
		return ok
	}
	allocations, err := i.external.source.ExternalAllocations(ctx)
	if ctx.Err() != nil {
		return false
	}
	defer i.write()
	logger := klog.FromContext(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.external.answered = i.external.begun
	if err != nil {
		if fmt.Sprint(err) != fmt.Sprint(i.external.err) {
			logger.Info("Cannot read GPUs of device plugins, using the last result", "err", err)
		}
		i.external.err = err
		return false
	}
	i.external.err = nil
	allocations = judge(&i.external, i.known.external, allocations, i.clock.Now())
	if !slices.Equal(allocations, i.known.external) {
		logger.Info("GPUs that pods have through device plugins", "devices", allocations)
		i.known.external = allocations
	}
	return true
}

// readSince reports whether a read after the one with the number has ended, and
// whether it succeeded. If none has, the caller must read, and readSince counts that
// read.
func (i *Inventory) readSince(number int) (since, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.external.answered > number {
		return true, i.external.err == nil
	}
	i.external.begun++
	return false, false
}

// SetDevicePlugin sets whether the node has a device plugin that offers GPUs.
func (i *Inventory) SetDevicePlugin(present bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if present && !i.external.plugin {
		notify.Wake(i.external.seen)
	}
	i.external.plugin = present
}
