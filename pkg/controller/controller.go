package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// lookTimeout bounds one look. Starting the driver of a large machine
	// without persistence mode takes many seconds.
	lookTimeout = 30 * time.Second
	// settleTime is when to look once more after other GPUs answer than
	// before: what they report is lost until watching has turned to them.
	settleTime = 5 * time.Second
	// modeTime is when to look again while the compute mode of a GPU may stand
	// in the way of claims: no event tells that it was changed back.
	modeTime = time.Minute
	// claimsTime is how long changes of what claims hold are gathered. They
	// matter only for what a node no longer offers.
	claimsTime = time.Second
)

// pauses are those between looks while something is missing, and between
// attempts to watch.
func pauses() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
}

// Hardware is the node's GPUs.
type Hardware interface {
	// Snapshot looks at all GPUs. A GPU that does not answer is in
	// [gpu.Node.Unreadable]; a driver that is not there is [gpu.ErrNotReady].
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

// Options are what a [Controller] is made of. Held, Node, Version and Plugins may
// be nil, for a node without claims, one that the API knows nothing of, a cluster
// whose scheduler is known to be new enough, and a node on which nobody else
// gives out GPUs; the others are required.
type Options struct {
	Hardware Hardware
	Publish  PublishFunc
	Held     HeldFunc
	Node     NodeFunc
	Version  VersionFunc
	Plugins  DevicePlugins
	Catalog  catalog.Catalog
	Clock    clock.Clock
}

// Controller publishes a node's GPUs. Its methods may be called from any
// goroutine, before and while Run runs.
type Controller struct {
	hardware Hardware
	publish  PublishFunc
	clock    clock.Clock
	held     HeldFunc
	node     NodeFunc
	version  VersionFunc
	plugins  DevicePlugins
	standard catalog.Offer // where no label says otherwise
	wake     chan struct{} // has an item when another look is due
	claims   chan struct{} // has an item when claims hold other devices
	looked   chan struct{} // closed after the first look that succeeded
	labelled chan struct{} // closed once the label is known, or known to be out of reach

	mu          sync.Mutex
	catalog     catalog.Catalog
	inventory   *inventory
	inUse       catalog.Held // as last told
	borrowed    borrowed
	labelErr    error                          // why the label is not followed
	withheld    string                         // what was logged not to be cut
	published   *resourceslice.DriverResources // nil before the first time
	state       State
	lastLogged  string
	dropped     map[string]bool // feature gates that are known to be off
	apiVersion  string          // as the API server told it, or ""
	tooOld      bool            // it is, or nobody can tell
	warned      bool            // that it is
	lastError   string          // that HandleError has logged
	subscribers map[chan struct{}]bool
}

// New gives a controller that has not looked yet.
func New(o Options) *Controller {
	return &Controller{
		hardware:    o.Hardware,
		publish:     o.Publish,
		clock:       o.Clock,
		held:        o.Held,
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

// Run looks and publishes until ctx ends, and then returns nil. It is called
// once.
func (c *Controller) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	watching.Go(func() { c.watchNode(ctx) })
	watching.Go(func() { c.watchLent(ctx) })
	defer watching.Wait()

	pause := pauses()
	for {
		well, others := c.look(ctx)
		next := nextLook(well, others, &pause)
		if next == 0 && c.modeInTheWay() {
			next = modeTime
		}
		if !c.wait(ctx, next) {
			return nil
		}
	}
}

// wait returns when the next look is due, after that time (0 for never) or
// because something asks for it; false when ctx has ended. Meanwhile it follows
// the claims.
func (c *Controller) wait(ctx context.Context, next time.Duration) bool {
	var again, settled <-chan time.Time
	if next > 0 {
		timer := c.clock.NewTimer(next)
		defer timer.Stop()
		again = timer.C()
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.wake:
			return true
		case <-again:
			return true
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

// nextLook says when to look again without an event asking for it; 0 for not
// at all.
func nextLook(well, others bool, pause *wait.Backoff) time.Duration {
	if !well {
		return pause.Step()
	}
	*pause = pauses()
	if others {
		return settleTime
	}
	return 0
}

func (c *Controller) modeInTheWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inventory.modeInTheWay()
}

// watch takes in events until ctx ends. What happens between two attempts to
// watch is seen by the look that follows.
func (c *Controller) watch(ctx context.Context) {
	pause := pauses()
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
			pause = pauses()
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

func (c *Controller) event(ctx context.Context, e gpu.Event) {
	c.mu.Lock()
	look := c.inventory.note(e)
	c.mu.Unlock()
	if look {
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

// look sees what there is and publishes it if that changes anything. It
// reports whether all is well and whether other GPUs answer than before.
func (c *Controller) look(ctx context.Context) (well, others bool) {
	// A claim may come or go while the GPUs are read: what one of the two
	// answers has is a claim's.
	before := c.heldNow(ctx)
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	node, err := c.hardware.Snapshot(limited)
	cancel()
	held := c.heldNow(ctx)
	if ctx.Err() != nil {
		return false, false
	}
	ours := maps.Clone(before)
	maps.Copy(ours, held)

	c.mu.Lock()
	if c.catalog.MIG.Static {
		ours = nil
	}
	others = c.inventory.observe(node, err, ours)
	if err == nil {
		c.hasLooked()
	}
	c.mu.Unlock()

	for _, known := range []chan struct{}{c.labelled, c.borrowed.known} {
		select {
		case <-known:
		case <-ctx.Done():
			return false, false
		}
	}
	publishing := c.publishDue(ctx, held)

	c.mu.Lock()
	defer c.mu.Unlock()
	missing := errors.Join(c.inventory.missing(), publishing)
	return missing == nil && len(c.inventory.known) > 0, others
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
	c.enter(ctx, c.phase(publishing), errors.Join(c.inventory.missing(), publishing, c.inventory.failed(), c.labelErr))
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
