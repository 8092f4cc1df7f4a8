// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Hardware reads the node's GPUs by NVML.
type Hardware interface {
	// Snapshot reads all GPUs. A GPU that does not answer within two seconds is in
	// [gpu.Node.Unreadable], and Watch reports when it answers. The error wraps
	// [gpu.ErrNotReady] while the driver is not loaded.
	Snapshot(ctx context.Context) (gpu.Node, error)
	// Watch calls on for each hardware event, one at a time, until ctx ends,
	// and then returns nil. It may wait while there are no GPUs.
	Watch(ctx context.Context, on func(gpu.Event)) error
}

// DriverLoadFunc identifies the present load of the GPU driver: it returns another
// text after the driver was unloaded and loaded.
type DriverLoadFunc func() (string, error)

// Claims reads what claims have made of the GPUs. It waits for no scan.
type Claims interface {
	Read(ctx context.Context) state.Claimed
}

// Options are the parts of an [Inventory].
type Options struct {
	// State gets the hardware and the conditions of the GPUs.
	State    *state.State
	Hardware Hardware
	// Bus may be nil: then GPUs that NVML does not list are not known.
	Bus Bus
	// DriverLoad may be nil: then only a change of the driver's version shows that the
	// driver was loaded again.
	DriverLoad DriverLoadFunc
	// DeviceNodes creates missing device nodes of a GPU, and returns why nodes that CUDA
	// programs need are missing. It may be nil.
	DeviceNodes func(gpu.GPU) error
	// External reads external allocations; nil if the kubelet is not asked.
	External ExternalSource
	// Namespaces reads whether MPS daemons can have namespaces; nil if the node has no
	// MPS daemons.
	Namespaces NamespaceSource
	// StaticMIG is set if claims make no partitions and switch no MIG mode: all of
	// them are an administrator's.
	StaticMIG bool
	// Faults stores a record for each GPU that has failed in the boot with the ID
	// BootID. If it is nil, faults are forgotten when the agent ends.
	Faults *store.Store
	BootID string
	Clock  clock.Clock
}

// Inventory is the writer of [state.State.Hardware] and [state.State.Conditions]. Its methods
// may be called from any goroutine, before and while Run runs.
type Inventory struct {
	o       Options
	records faultRecords
	// external are the external allocations. pluginSeen has an item after a device plugin has
	// appeared on the node.
	external   *source.Reader[external]
	pluginSeen chan struct{}
	// namespaces reports whether MPS daemons can have namespaces.
	namespaces *source.Reader[bool]
	due        chan struct{} // has an item when another scan is due
	// rescans spaces scans after failed prepares, and programs those after faults of programs.
	rescans, programs rate.Sometimes

	writing sync.Mutex // one write at a time, so that the last one is written last

	mu       sync.Mutex
	known    *knowledge
	plugin   bool   // the node has a device plugin
	repaired string // the annotation that repairs were read from
	repairs  []repair
	// repairSyntax says why the annotation is not understood, and repairErr why
	// entries of it have no effect.
	repairSyntax, repairErr error
	cordoned                string // the annotation with the cordoned GPUs
	cordonSyntax            error
	again                   bool // scan again: a recovery action may follow an event
}

// New returns an inventory that has not scanned yet.
func New(o Options) *Inventory {
	i := &Inventory{
		o:          o,
		records:    faultRecords{store: o.Faults, boot: o.BootID},
		pluginSeen: make(chan struct{}, 1),
		due:        make(chan struct{}, 1),
		rescans:    rate.Sometimes{Interval: rescanInterval},
		programs:   rate.Sometimes{Interval: rescanInterval},
		known:      newKnowledge(),
	}
	i.external = source.NewReader("Cannot read GPUs of device plugins, using the last result", i.externalRead)
	i.namespaces = source.NewReader("Cannot read whether MPS has namespaces, will retry", i.namespacesRead)
	return i
}

// Run scans the hardware and follows its events until ctx ends. It is called
// once.
func (i *Inventory) Run(ctx context.Context, claims Claims) {
	i.mu.Lock()
	i.known.faults = i.records.load(ctx, i.o.Clock.Now())
	i.mu.Unlock()
	i.write()

	var following sync.WaitGroup
	following.Go(func() { i.watch(ctx) })
	following.Go(func() { i.followExternal(ctx) })
	following.Go(func() { i.followNamespaces(ctx) })
	defer following.Wait()

	pace := newPace()
	for ctx.Err() == nil && i.wait(ctx, pace.next(i.scan(ctx, claims), i.o.Clock.Now())) {
	}
}

// write writes the state. The faults are first, so that no reader sees a GPU of which only
// the scan that found the fault is written.
func (i *Inventory) write() {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.mu.Lock()
	conditions, hardware := i.known.conditions(), i.known.hardware()
	external := i.external.Last()
	conditions.External, conditions.ExternalKnown = external.Value.allocations, i.o.External == nil || external.Known()
	conditions.MPSNamespaces = i.namespaces.Last().Value
	conditions.Repairs = errors.Join(i.repairSyntax, i.repairErr, i.cordonSyntax)
	i.mu.Unlock()
	i.o.State.Conditions.Set(conditions)
	i.o.State.Hardware.Set(hardware)
}

// wait returns true when the next scan is due: after that time, or because
// something requests it. It returns false when ctx ends.
func (i *Inventory) wait(ctx context.Context, next time.Duration) bool {
	timer := i.o.Clock.NewTimer(next)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-i.due:
	case <-timer.C():
	}
	return true
}

// RequestScan makes Run scan the hardware soon.
func (i *Inventory) RequestScan() { notify.Wake(i.due) }

// watch follows hardware events until ctx ends. The scan after each attempt finds
// what happened while no attempt was running.
func (i *Inventory) watch(ctx context.Context) {
	pause := source.Backoff()
	for {
		began := i.o.Clock.Now()
		err := i.o.Hardware.Watch(ctx, func(e gpu.Event) { i.recordEvent(ctx, e) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, gpu.ErrNotSupported):
			klog.FromContext(ctx).Info("GPUs report no events, faults are found by scans", "err", err)
			return
		}
		if i.o.Clock.Since(began) > time.Minute {
			pause = source.Backoff()
		}
		after := pause.Step()
		klog.FromContext(ctx).Info("GPU event watch ended, will retry", "err", err, "retryAfter", after)
		timer := i.o.Clock.NewTimer(after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		i.RequestScan()
	}
}

// recordEvent records a hardware event. A fault is on the disk before it is published,
// and published before the hardware is scanned, which may hang.
func (i *Inventory) recordEvent(ctx context.Context, e gpu.Event) {
	i.mu.Lock()
	effect := i.known.note(e, i.repairs, i.o.Clock.Now())
	i.again = i.again || effect.again
	i.mu.Unlock()
	if effect.marked {
		i.saveFaults(ctx)
		i.write()
	}
	scan := func() {
		klog.FromContext(ctx).Info("Hardware event", "kind", e.Kind, "uuid", e.UUID, "xid", e.XID)
		i.RequestScan()
	}
	switch {
	case effect.spaced:
		i.programs.Do(scan)
	case effect.scan:
		scan()
	}
}

// scan reads the hardware once and records the result.
func (i *Inventory) scan(ctx context.Context, claims Claims) outcome {
	before := claims.Read(ctx).Changes
	s := scan{}
	s.node, s.err = i.snapshot(ctx)
	s.nodes = map[string]error{}
	for _, g := range s.node.GPUs {
		if i.o.DeviceNodes != nil {
			s.nodes[g.UUID] = i.o.DeviceNodes(g)
		}
	}
	i.waitNamespaces(ctx)
	s.changes = state.During(before, claims.Read(ctx).Changes)
	if ctx.Err() != nil {
		return outcome{}
	}
	if i.o.StaticMIG {
		s.changes = state.Changes{Exclusive: s.changes.Exclusive}
	}
	if i.o.DriverLoad != nil {
		s.load, s.loadErr = i.o.DriverLoad()
	}
	s.time = i.o.Clock.Now()
	others := i.observe(ctx, s)
	i.saveFaults(ctx)
	i.write()
	return outcomeOf(i.o.State.Snapshot(), others)
}

func (i *Inventory) snapshot(ctx context.Context) (gpu.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	if i.o.Bus == nil {
		return i.o.Hardware.Snapshot(ctx)
	}
	return Read(ctx, i.o.Bus, i.o.Hardware.Snapshot)
}

// observe records a scan, and applies the administrator's repairs to it. It reports whether
// other GPUs answer than before, or a recovery action may follow.
func (i *Inventory) observe(ctx context.Context, s scan) (others bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	others = i.known.observe(s) || i.again
	i.again = false
	if s.err == nil {
		i.repairErr = i.known.repair(i.repairs, s.time)
	}
	for _, line := range i.known.takeOver() {
		klog.FromContext(ctx).Info("GPU fault has ended", "fault", line)
	}
	return others
}

// SetRepaired takes the value of the node's [v1alpha1.AnnotationRepaired]. A value that is
// not understood ends no fault, even if a part of it could be understood.
func (i *Inventory) SetRepaired(value string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if value == i.repaired {
		return
	}
	i.repaired = value
	i.repairs, i.repairSyntax = parseRepaired(value)
	i.RequestScan()
}
