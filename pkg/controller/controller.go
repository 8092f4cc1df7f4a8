package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// Hardware is the node's GPUs.
type Hardware interface {
	// Snapshot reads all GPUs. A GPU that does not answer within two seconds is in
	// [gpu.Node.Unreadable], and Watch reports when it does; a driver that is not
	// there is [gpu.ErrNotReady].
	Snapshot(ctx context.Context) (gpu.Node, error)
	// Watch calls on for each hardware event, one at a time, until ctx ends,
	// and then returns nil. It may wait while there are no GPUs.
	Watch(ctx context.Context, on func(gpu.Event)) error
}

// PublishFunc makes the resources what the node publishes. It returns when the
// change is accepted, not when it is written.
type PublishFunc func(ctx context.Context, resources resourceslice.DriverResources) error

// HeldFunc gives the devices that claims hold now. It must not wait for
// anything that waits for the controller.
type HeldFunc func(ctx context.Context) (catalog.Held, error)

// SwitchedFunc returns the GPUs whose MIG mode claims have switched on. Every
// other mode is an administrator's.
type SwitchedFunc func(ctx context.Context) (map[gpu.PCIAddress]bool, error)

// DriverLoadFunc identifies the present load of the GPU driver: it returns another
// text after the driver was unloaded and loaded.
type DriverLoadFunc func() (string, error)

// Options are what a [Controller] is made of. Held, Switched, Node, Version and
// Plugins may be nil, for a node without claims, one whose MIG modes are all the
// administrator's, one that the API knows nothing of, a cluster whose scheduler is
// known to be new enough, and a node on which nobody else gives out GPUs. Without
// DriverLoad only a change of the driver's version shows that it was loaded anew.
// Without Faults a fault is forgotten when the agent ends. The others are required.
type Options struct {
	Hardware   Hardware
	Publish    PublishFunc
	Held       HeldFunc
	Switched   SwitchedFunc
	Node       NodeFunc
	Version    VersionFunc
	Plugins    DevicePlugins
	DriverLoad DriverLoadFunc
	// Faults has a record for each GPU that has failed in this boot, which has the
	// ID.
	Faults  *store.Store
	BootID  string
	Catalog catalog.Catalog
	Clock   clock.Clock
}

// Controller publishes a node's GPUs. Its methods may be called from any
// goroutine, before and while Run runs.
type Controller struct {
	hardware Hardware
	publish  PublishFunc
	clock    clock.Clock
	held     HeldFunc
	switched SwitchedFunc
	node     NodeFunc
	version  VersionFunc
	plugins  DevicePlugins
	load     DriverLoadFunc
	records  faultRecords
	standard catalog.Offer // where no label says otherwise
	wake     chan struct{} // has an item when another look is due
	marked   chan struct{} // has an item when a GPU has a cause that it had not
	claims   chan struct{} // has an item when claims hold other devices
	looked   chan struct{} // closed after the first look that succeeded
	labelled chan struct{} // closed once the label is known, or known to be out of reach

	mu        sync.Mutex
	catalog   catalog.Catalog
	inventory *inventory
	inUse     catalog.Held            // as last told
	modes     map[gpu.PCIAddress]bool // switched by claims, as last told
	repaired  string                  // the annotation that repairs were read from
	repairs   []repair
	// repairSyntax says why the annotation is not understood, and repairErr why
	// entries of it have no effect.
	repairSyntax, repairErr error
	again                   bool // scan once more: what the driver asks for may follow an event
	borrowed                borrowed
	labelErr                error                          // why the label is not followed
	withheld                string                         // what was logged not to be cut
	published               *resourceslice.DriverResources // nil before the first time
	state                   State
	lastLogged              string
	dropped                 map[string]bool // feature gates that are known to be off
	apiVersion              string          // as the API server told it, or ""
	tooOld                  bool            // it is, or nobody can tell
	warned                  bool            // that it is
	lastError               string          // that HandleError has logged
	subscribers             map[chan struct{}]bool
}

// New gives a controller that has not looked yet.
func New(o Options) *Controller {
	return &Controller{
		hardware:    o.Hardware,
		publish:     o.Publish,
		clock:       o.Clock,
		held:        o.Held,
		switched:    o.Switched,
		load:        o.DriverLoad,
		records:     faultRecords{store: o.Faults, boot: o.BootID},
		marked:      make(chan struct{}, 1),
		node:        o.Node,
		version:     o.Version,
		plugins:     o.Plugins,
		standard:    o.Catalog.Offer,
		wake:        make(chan struct{}, 1),
		claims:      make(chan struct{}, 1),
		looked:      make(chan struct{}),
		labelled:    make(chan struct{}),
		catalog:     o.Catalog,
		inventory:   newInventory(),
		state:       State{Phase: Looking, Since: o.Clock.Now()},
		dropped:     map[string]bool{},
		subscribers: map[chan struct{}]bool{},
		borrowed:    borrowed{asking: make(chan struct{}, 1), known: make(chan struct{}), seen: make(chan struct{}, 1)},
	}
}

// Run scans and publishes until ctx ends, and then returns nil. It is called
// once.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	c.inventory.faults = c.records.load(ctx, c.clock.Now())
	c.mu.Unlock()

	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	watching.Go(func() { c.watchNode(ctx) })
	watching.Go(func() { c.watchLent(ctx) })
	defer watching.Wait()

	pace := newPace()
	for {
		if !c.wait(ctx, pace.next(c.look(ctx))) {
			return nil
		}
	}
}

// wait returns when the next scan is due, after that time or because something
// asks for it; false when ctx has ended. Meanwhile it publishes what changes
// without a scan.
func (c *Controller) wait(ctx context.Context, next time.Duration) bool {
	timer := c.clock.NewTimer(next)
	defer timer.Stop()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.wake:
			return true
		case <-timer.C():
			return true
		case <-c.marked:
			c.publishMarked(ctx)
		case <-c.claims:
			if settled == nil {
				settled = c.clock.After(claimsTime)
			}
		case <-settled:
			settled = nil
			if err := c.publishDue(ctx, c.heldNow(ctx)); err != nil {
				return true
			}
		}
	}
}

// watch takes in events until ctx ends. What happens between two attempts to
// watch is seen by the look that follows.
func (c *Controller) watch(ctx context.Context) {
	pause := backoff()
	for {
		began := c.clock.Now()
		err := c.hardware.Watch(ctx, func(e gpu.Event) { c.event(ctx, e) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, gpu.ErrNotSupported):
			klog.FromContext(ctx).Info("The GPUs report no events: a fault is not noticed before something asks the GPU", "err", err)
			return
		}
		if c.clock.Since(began) > time.Minute {
			pause = backoff()
		}
		after := pause.Step()
		klog.FromContext(ctx).Info("Watching the GPUs ended", "err", err, "retryAfter", after)
		timer := c.clock.NewTimer(after)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		c.lookAgain()
	}
}

// event takes in a hardware event. A fault is on the disk before it is published,
// and published before the hardware is scanned, which may hang.
func (c *Controller) event(ctx context.Context, e gpu.Event) {
	c.mu.Lock()
	news := c.inventory.note(e, c.clock.Now())
	c.again = c.again || news.again
	c.mu.Unlock()
	if news.marked {
		c.saveFaults(ctx)
		select {
		case c.marked <- struct{}{}:
		default: // one is waiting already
		}
	}
	if news.scan {
		klog.FromContext(ctx).Info("Hardware event", "kind", e.Kind, "uuid", e.UUID, "xid", e.XID)
		c.lookAgain()
	}
}

func (c *Controller) lookAgain() {
	select {
	case c.wake <- struct{}{}:
	default: // one is due already
	}
}

// look scans the hardware and publishes what it finds if that changes anything.
func (c *Controller) look(ctx context.Context) outcome {
	// A claim may come or go while the GPUs are read: what one of the two
	// answers has is a claim's.
	before, switchedBefore := c.heldNow(ctx), c.switchedNow(ctx)
	s := scan{}
	s.node, s.err = c.snapshot(ctx)
	held, switched := c.heldNow(ctx), c.switchedNow(ctx)
	if ctx.Err() != nil {
		return outcome{}
	}
	s.held, s.switched = union(before, held), union(switchedBefore, switched)
	if c.load != nil {
		s.load, s.loadErr = c.load()
	}
	s.at = c.clock.Now()

	others := c.observe(ctx, s)
	c.saveFaults(ctx)
	for _, known := range []chan struct{}{c.labelled, c.borrowed.known} {
		select {
		case <-known:
		case <-ctx.Done():
			return outcome{}
		}
	}
	publishing := c.publishDue(ctx, held)

	c.mu.Lock()
	defer c.mu.Unlock()
	missing := errors.Join(c.inventory.missing(), publishing)
	o := outcome{
		complete:  missing == nil && len(c.inventory.known) > 0,
		others:    others || c.again,
		unsettled: c.inventory.unsettled(),
		passing:   len(c.inventory.faults) > 0 || c.inventory.modeInTheWay(),
	}
	c.again = false
	return o
}

// union returns the entries of both maps.
func union[M ~map[K]V, K comparable, V any](a, b M) M {
	both := M{}
	maps.Copy(both, a)
	maps.Copy(both, b)
	return both
}

// snapshot reads the hardware. A fault that is reported meanwhile is published at
// once: its GPU may be why the hardware does not answer.
func (c *Controller) snapshot(ctx context.Context) (node gpu.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		node, err = c.hardware.Snapshot(ctx)
	}()
	for {
		select {
		case <-read:
			return node, err
		case <-c.marked:
			c.publishMarked(ctx)
		}
	}
}

// observe takes in a scan, with the word of an administrator about it.
func (c *Controller) observe(ctx context.Context, s scan) (others bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.catalog.MIG.Static {
		s.held, s.switched = nil, nil
	}
	others = c.inventory.observe(s)
	if s.err == nil {
		c.hasLooked()
		c.repairErr = c.inventory.repair(c.repairs, s.at)
	}
	for _, line := range c.inventory.takeOver() {
		klog.FromContext(ctx).Info("GPU fault has ended", "fault", line)
	}
	return others
}

// publishMarked publishes faults of GPUs that are published already. What it fails
// at is published with the scan that follows.
func (c *Controller) publishMarked(ctx context.Context) {
	c.mu.Lock()
	first := c.published == nil
	c.mu.Unlock()
	if !first {
		_ = c.publishDue(ctx, c.heldNow(ctx))
	}
}

// publishDue publishes what is known, if that is due.
func (c *Controller) publishDue(ctx context.Context, held catalog.Held) error {
	publishing := c.learnVersion(ctx)
	c.mu.Lock()
	known := c.inventory.node()
	resources := c.catalog.Resources(known, c.inventory.unhealthy(), held)
	due := publishing == nil && c.due(resources)
	c.warnTooOld(ctx)
	c.logWithheld(ctx, known)
	c.mu.Unlock()

	if due {
		if err := c.publish(ctx, resources); err != nil {
			publishing = fmt.Errorf("publish the node's devices: %w", err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // the end is no state to report
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if due && publishing == nil {
		c.published = &resources
	}
	c.state.Unpublished = publishing != nil
	c.enter(ctx, c.phase(publishing), errors.Join(c.inventory.missing(), publishing, c.inventory.failed(), c.labelErr, c.repairSyntax, c.repairErr))
	if due {
		c.notify()
	}
	return publishing
}

// due reports whether the resources are to be published. A first look that
// failed for another reason than a missing driver says nothing of the GPUs, and
// what an earlier process published stays. Callers hold mu.
func (c *Controller) due(resources resourceslice.DriverResources) bool {
	if c.published == nil {
		return c.inventory.looked == nil || errors.Is(c.inventory.looked, gpu.ErrNotReady)
	}
	return !equality.Semantic.DeepEqual(*c.published, resources)
}

// hasLooked lets those go on who wait for the first look. Callers hold mu.
func (c *Controller) hasLooked() {
	select {
	case <-c.looked:
	default:
		close(c.looked)
	}
}

// phase follows from what is known. Callers hold mu.
func (c *Controller) phase(publishing error) Phase {
	switch looked := c.inventory.looked; {
	case publishing != nil:
		return c.state.Phase
	case len(c.inventory.known) > 0:
		return Published
	case errors.Is(looked, gpu.ErrNotReady):
		return NoDriver
	case looked != nil:
		return Looking
	default:
		return NoGPUs
	}
}

// enter records the state and logs it if it reads differently. Callers hold
// mu.
func (c *Controller) enter(ctx context.Context, phase Phase, err error) {
	if phase != c.state.Phase {
		c.state.Since = c.clock.Now()
	}
	c.state.Phase, c.state.Err = phase, err
	devices := c.devices()
	c.state.Devices, c.state.Healthy = len(devices), 0
	for _, d := range devices {
		if d.Healthy {
			c.state.Healthy++
		}
	}
	if line := c.state.String(); line != c.lastLogged {
		c.lastLogged = line
		klog.FromContext(ctx).Info("GPUs of the node", "state", line)
	}
}
