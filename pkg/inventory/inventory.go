// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
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

// Options are the parts of an [Inventory].
type Options struct {
	Hardware Hardware
	// Bus may be nil: then GPUs that NVML does not list are not known.
	Bus Bus
	// DriverLoad may be nil: then only a change of the driver's version shows that
	// the driver was loaded anew.
	DriverLoad DriverLoadFunc
	// External reads external allocations; nil if the kubelet is not asked.
	External ExternalSource
	// Namespaces reads whether MPS daemons can have namespaces; nil if the node has no
	// MPS daemons.
	Namespaces NamespaceSource
	// StaticMIG is set if claims make no partitions and switch no MIG mode: all of
	// them are an administrator's.
	StaticMIG bool
	// Faults has a record for each GPU that has failed in the boot with the ID
	// BootID; nil if a fault is forgotten when the agent ends.
	Faults *store.Store
	BootID string
	Clock  clock.Clock
}

// Inventory knows the node's GPUs. Its methods may be called from any goroutine,
// before and while Run runs.
type Inventory struct {
	hardware  Hardware
	bus       Bus // may be nil
	clock     clock.Clock
	load      DriverLoadFunc
	staticMIG bool
	records   faultRecords
	external  external
	// namespaces of MPS daemons.
	namespaces namespaces
	changes    notify.Subscribers
	due        chan struct{} // has an item when another scan is due
	scanned    chan struct{} // closed after the first scan that succeeded
	ready      chan struct{} // closed once Run has scanned and read external allocations

	mu       sync.Mutex
	known    *knowledge
	repaired string // the annotation that repairs were read from
	repairs  []repair
	// repairSyntax says why the annotation is not understood, and repairErr why
	// entries of it have no effect.
	repairSyntax, repairErr error
	again                   bool // scan once more: a recovery action may follow an event
}

// New returns an inventory that has not scanned yet.
func New(o Options) *Inventory {
	return &Inventory{
		hardware:   o.Hardware,
		bus:        o.Bus,
		clock:      o.Clock,
		load:       o.DriverLoad,
		staticMIG:  o.StaticMIG,
		records:    faultRecords{store: o.Faults, boot: o.BootID},
		external:   newExternal(o.External),
		namespaces: namespaces{source: o.Namespaces, tried: make(chan struct{})},
		due:        make(chan struct{}, 1),
		scanned:    make(chan struct{}),
		ready:      make(chan struct{}),
		known:      newKnowledge(),
	}
}

// Run scans the hardware and follows its events until ctx ends. It is called
// once.
func (i *Inventory) Run(ctx context.Context, holders *Holders) {
	i.mu.Lock()
	i.known.faults = i.records.load(ctx, i.clock.Now())
	i.mu.Unlock()

	var following sync.WaitGroup
	following.Go(func() { i.watch(ctx) })
	following.Go(func() { i.followExternal(ctx) })
	following.Go(func() { i.followNamespaces(ctx) })
	defer following.Wait()

	pace := newPace()
	for first := true; ; first = false {
		next := pace.next(i.scan(ctx, holders))
		if first && !i.setReady(ctx) {
			return
		}
		i.changes.Notify()
		if !i.wait(ctx, next) {
			return
		}
	}
}

// setReady closes the channel ready once external allocations are known. It
// returns false if ctx ends first.
func (i *Inventory) setReady(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-i.external.known:
		close(i.ready)
		return true
	}
}

// wait returns true when the next scan is due: after that time, or because
// something requests it. It returns false when ctx ends.
func (i *Inventory) wait(ctx context.Context, next time.Duration) bool {
	timer := i.clock.NewTimer(next)
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

// Ready is closed once the hardware was scanned for the first time, with whatever
// result, and external allocations are known.
func (i *Inventory) Ready() <-chan struct{} { return i.ready }

// Subscribe returns a channel that has an item after each change of the [View],
// and after each scan, until cancel is called.
func (i *Inventory) Subscribe() (changed <-chan struct{}, cancel func()) {
	return i.changes.Subscribe()
}

// watch follows hardware events until ctx ends. The scan after each attempt finds
// what happened while no attempt was running.
func (i *Inventory) watch(ctx context.Context) {
	pause := scanBackoff()
	for {
		began := i.clock.Now()
		err := i.hardware.Watch(ctx, func(e gpu.Event) { i.event(ctx, e) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, gpu.ErrNotSupported):
			klog.FromContext(ctx).Info("GPUs report no events, faults are found by scans", "err", err)
			return
		}
		if i.clock.Since(began) > time.Minute {
			pause = scanBackoff()
		}
		after := pause.Step()
		klog.FromContext(ctx).Info("GPU event watch ended, will retry", "err", err, "retryAfter", after)
		timer := i.clock.NewTimer(after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		i.RequestScan()
	}
}

// event records a hardware event. A fault is on the disk before it is published,
// and published before the hardware is scanned, which may hang.
func (i *Inventory) event(ctx context.Context, e gpu.Event) {
	i.mu.Lock()
	effect := i.known.note(e, i.clock.Now())
	i.again = i.again || effect.again
	i.mu.Unlock()
	if effect.marked {
		i.saveFaults(ctx)
		i.changes.Notify()
	}
	if effect.scan {
		klog.FromContext(ctx).Info("Hardware event", "kind", e.Kind, "uuid", e.UUID, "xid", e.XID)
		i.RequestScan()
	}
}

// scan reads the hardware once and records what it finds.
func (i *Inventory) scan(ctx context.Context, holders *Holders) outcome {
	// A claim may come or go while the GPUs are read: a partition or mode that is in
	// one of the two answers belongs to a claim.
	heldBefore, switchedBefore, exclusiveBefore, keptBefore := holders.held.get(ctx), holders.switched.get(ctx), holders.exclusive.get(ctx), holders.kept.get(ctx)
	s := scan{}
	s.node, s.err = i.snapshot(ctx)
	i.waitNamespaces(ctx)
	held, switched, exclusive, kept := holders.held.get(ctx), holders.switched.get(ctx), holders.exclusive.get(ctx), holders.kept.get(ctx)
	if ctx.Err() != nil {
		return outcome{}
	}
	s.exclusive = union(exclusiveBefore, exclusive)
	if !i.staticMIG {
		s.held, s.switched, s.kept = union(heldBefore, held), union(switchedBefore, switched), union(keptBefore, kept)
	}
	if i.load != nil {
		s.load, s.loadErr = i.load()
	}
	s.at = i.clock.Now()
	o := i.observe(ctx, s)
	i.saveFaults(ctx)
	return o
}

// union returns the entries of both maps.
func union[M ~map[K]V, K comparable, V any](a, b M) M {
	both := M{}
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}

func (i *Inventory) snapshot(ctx context.Context) (gpu.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	if i.bus == nil {
		return i.hardware.Snapshot(ctx)
	}
	return Read(ctx, i.bus, i.hardware.Snapshot)
}

// observe records a scan, and applies the administrator's repairs to it.
func (i *Inventory) observe(ctx context.Context, s scan) outcome {
	i.mu.Lock()
	defer i.mu.Unlock()
	others := i.known.observe(s)
	if s.err == nil {
		i.setScanned()
		i.repairErr = i.known.repair(i.repairs, s.at)
	}
	for _, line := range i.known.takeOver() {
		klog.FromContext(ctx).Info("GPU fault has ended", "fault", line)
	}
	o := outcome{
		complete: i.known.missing() == nil && len(i.known.gpus) > 0,
		others:   others || i.again,
		joining:  i.known.joining(),
		passing:  len(i.known.faults) > 0 || i.known.modeInTheWay(),
	}
	i.again = false
	return o
}

// setScanned wakes the callers that wait for the first scan. Callers hold mu.
func (i *Inventory) setScanned() {
	select {
	case <-i.scanned:
	default:
		close(i.scanned)
	}
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
