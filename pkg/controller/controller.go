package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
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

// Options are what a [Controller] is made of. All are required.
type Options struct {
	Hardware Hardware
	Publish  PublishFunc
	Catalog  catalog.Catalog
	Clock    clock.Clock
}

// Controller publishes a node's GPUs. Its methods may be called from any
// goroutine, before and while Run runs.
type Controller struct {
	hardware Hardware
	publish  PublishFunc
	clock    clock.Clock
	wake     chan struct{} // has an item when another look is due
	looked   chan struct{} // closed after the first look that succeeded

	mu          sync.Mutex
	catalog     catalog.Catalog
	inventory   *inventory
	published   *resourceslice.DriverResources // nil before the first time
	state       State
	lastLogged  string
	dropped     map[string]bool // feature gates that are known to be off
	lastError   string          // that HandleError has logged
	subscribers map[chan struct{}]bool
}

// New gives a controller that has not looked yet.
func New(o Options) *Controller {
	return &Controller{
		hardware:    o.Hardware,
		publish:     o.Publish,
		clock:       o.Clock,
		wake:        make(chan struct{}, 1),
		looked:      make(chan struct{}),
		catalog:     o.Catalog,
		inventory:   newInventory(),
		state:       State{Phase: Looking, Since: o.Clock.Now()},
		dropped:     map[string]bool{},
		subscribers: map[chan struct{}]bool{},
	}
}

// Run looks and publishes until ctx ends, and then returns nil. It is called
// once.
func (c *Controller) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx) })
	defer watching.Wait()

	pause := pauses()
	for {
		well, others := c.look(ctx)
		var again <-chan time.Time
		stop := func() {}
		if after := nextLook(well, others, &pause); after > 0 {
			timer := c.clock.NewTimer(after)
			again, stop = timer.C(), func() { timer.Stop() }
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-c.wake:
		case <-again:
		}
		stop()
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
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	node, err := c.hardware.Snapshot(limited)
	cancel()
	if ctx.Err() != nil {
		return false, false
	}

	c.mu.Lock()
	others = c.inventory.observe(node, err)
	if err == nil {
		c.hasLooked()
	}
	known := c.inventory.node()
	resources := c.catalog.Resources(known, c.inventory.unhealthy())
	due := c.due(resources)
	c.mu.Unlock()

	var publishing error
	if due {
		if err := c.publish(ctx, resources); err != nil {
			publishing = fmt.Errorf("publish the node's devices: %w", err)
		}
	}
	if ctx.Err() != nil {
		return false, false
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if due && publishing == nil {
		c.published = &resources
	}
	missing := errors.Join(c.inventory.missing(), publishing)
	c.enter(ctx, c.phase(publishing), errors.Join(missing, c.inventory.failed()))
	if due {
		c.notify()
	}
	return missing == nil && len(known.GPUs) > 0, others
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
	devices := c.inventory.devices()
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

// State gives the present state.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Devices gives the status of all published devices, ordered by name.
func (c *Controller) Devices() []DeviceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inventory.devices()
}

// Subscribe gives a channel that has an item after what is published or the
// health of a device has changed, until cancel is called.
func (c *Controller) Subscribe() (changed <-chan struct{}, cancel func()) {
	channel := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers[channel] = true
	return channel, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subscribers, channel)
	}
}

// notify tells the subscribers. Callers hold mu.
func (c *Controller) notify() {
	for channel := range c.subscribers {
		select {
		case channel <- struct{}{}:
		default: // an item is waiting already
		}
	}
}

// GPU gives the GPU at the address as it was last seen. Before the first look
// has succeeded it waits for it; if ctx ends first, the error wraps
// [gpu.ErrNotReady] and says what is known. [gpu.ErrNotFound] means that the
// node has no such GPU, and [gpu.ErrLost], [gpu.ErrTimeout] or
// [gpu.ErrNotReady] that it has one that does not answer now.
func (c *Controller) GPU(ctx context.Context, address gpu.PCIAddress) (gpu.GPU, error) {
	select {
	case <-c.looked:
	default:
		select {
		case <-c.looked:
		case <-ctx.Done():
			return gpu.GPU{}, fmt.Errorf("GPU at %s: %w: %s", address, gpu.ErrNotReady, c.State())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inventory.find(address)
}

// Attributes gives the attributes with which the GPU at the address is
// published, nil if it is not.
func (c *Controller) Attributes(address gpu.PCIAddress) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalog.Attributes(c.inventory.node(), address)
}
