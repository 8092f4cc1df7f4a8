// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/notify"
)

// claimsTime is how long changes of what claims hold are gathered. They matter only
// for devices that the node no longer offers.
const claimsTime = time.Second

// orderTime is the least time between changes of the order of devices: each makes the
// scheduler try all pending pods with claims again.
const orderTime = 30 * time.Second

// retryBackoff returns the back-off between attempts to publish.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}
}

// PublishFunc makes the resources what the node publishes. It returns when the
// change is accepted, not when it is written.
type PublishFunc func(ctx context.Context, resources resourceslice.DriverResources) error

// Options are the parts of a [Controller].
type Options struct {
	Sources
	// Holders read which devices claims hold.
	Holders *inventory.Holders
	// Taken reads the memory that claims take of devices; nil keeps the devices in the
	// order of their names.
	Taken func(ctx context.Context) (catalog.Taken, error)
	// InUse returns the devices that are in use although the cluster counts them as
	// free; nil if there are none.
	InUse func(ctx context.Context) catalog.InUse
	Clock clock.Clock
}

// Controller publishes a node's GPUs. Its methods may be called from any
// goroutine, before and while Run runs.
type Controller struct {
	sources   Sources
	holders   *inventory.Holders
	readTaken func(ctx context.Context) (catalog.Taken, error)
	inUse     func(ctx context.Context) catalog.InUse
	clock     clock.Clock
	claims    chan struct{} // has an item when claims hold other devices
	changes   notify.Subscribers

	// Of Run alone.

	warned   bool   // that the API server is too old
	withheld string // the last logged reasons why devices are not offered
	taken    catalog.Taken

	mu         sync.Mutex
	published  *resourceslice.DriverResources // nil before the first time
	state      State
	lastLogged string
}

// New returns a controller that has published nothing yet.
func New(o Options) *Controller {
	return &Controller{
		sources:   o.Sources,
		holders:   o.Holders,
		readTaken: o.Taken,
		inUse:     o.InUse,
		clock:     o.Clock,
		claims:    make(chan struct{}, 1),
		state:     State{Phase: Looking, Since: o.Clock.Now()},
	}
}

// Run publishes until ctx ends. It is called once. It publishes nothing before the
// inventory and the node's configuration are known.
func (c *Controller) Run(ctx context.Context, publish PublishFunc) {
	known, stopKnown := c.sources.Inventory.Subscribe()
	defer stopKnown()
	configured, stopConfigured := c.sources.NodeConfig.Subscribe()
	defer stopConfigured()
	supported, stopSupported := c.sources.Features.Subscribe()
	defer stopSupported()
	for _, ready := range []<-chan struct{}{c.sources.Inventory.Ready(), c.sources.NodeConfig.Known()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}

	pause := retryBackoff()
	c.learnTaken(ctx)
	var gathered, ordered <-chan time.Time
	for {
		var retry <-chan time.Time
		if err := c.publishDue(ctx, publish); err != nil {
			retry = c.clock.After(pause.Step())
		} else {
			pause = retryBackoff()
		}
	idle:
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.claims:
				if gathered == nil {
					gathered = c.clock.After(claimsTime)
				}
				if ordered == nil && c.readTaken != nil {
					ordered = c.clock.After(orderTime)
				}
				continue idle
			case <-gathered:
				gathered = nil
			case <-ordered:
				ordered = nil
				c.learnTaken(ctx)
			case <-known:
			case <-configured:
			case <-supported:
			case <-retry:
			}
			break idle
		}
	}
}

// learnTaken reads the memory that claims take, and keeps the last state if it cannot.
func (c *Controller) learnTaken(ctx context.Context) {
	if c.readTaken == nil {
		return
	}
	taken, err := c.readTaken(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the memory that claims take, devices keep their order")
		return
	}
	c.taken = taken
}

// ClaimsChanged says that claims hold other devices than before. A device that the
// node no longer offers is withdrawn once no claim holds it.
func (c *Controller) ClaimsChanged() { notify.Wake(c.claims) }

// publishDue publishes the node's devices, if they have changed. It publishes
// nothing before the version of the API server is known: the server does not
// answer, and would accept nothing.
func (c *Controller) publishDue(ctx context.Context, publish PublishFunc) error {
	failed := c.sources.Features.Learn(ctx)
	held := catalog.Held(c.holders.Held(ctx))
	view := c.sources.Inventory.View()
	followed, unrecorded := c.sources.NodeConfig.Follow(view.Node)
	describe := catalog.New(c.sources.Settings, followed.Config, c.sources.Features.Now().Restrictions)
	describe.Partitions, describe.Taken = followed.Layout, c.taken
	if c.inUse != nil {
		describe.InUse = c.inUse(ctx)
	}
	resources := describe.Resources(view.Node, view.Unhealthy(), held)
	due := failed == nil && c.due(view, resources)
	c.warnTooOld(ctx, describe)
	c.logWithheld(ctx, describe.Withheld(view.Node))

	if due {
		if err := publish(ctx, resources); err != nil {
			failed = fmt.Errorf("publish the node's devices: %w", err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // the end of the agent is not a state to report
	}

	_, config := c.sources.NodeConfig.Now()
	c.mu.Lock()
	if due && failed == nil {
		c.published = &resources
	}
	c.state.Unpublished = failed != nil
	c.enter(ctx, view, failed, errors.Join(view.Missing, failed, view.Faults, view.Topology, config, view.Repairs))
	c.mu.Unlock()
	if due {
		c.changes.Notify()
	}
	return errors.Join(failed, unrecorded)
}

// due reports whether the resources differ from the published ones. If the first scan
// fails for another reason than a missing driver, the state of the GPUs is unknown,
// and the slices of an earlier process stay.
func (c *Controller) due(view inventory.View, resources resourceslice.DriverResources) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.published == nil {
		return view.ScanErr == nil || errors.Is(view.ScanErr, gpu.ErrNotReady)
	}
	return !equality.Semantic.DeepEqual(*c.published, resources)
}

// phase returns the phase that follows from the inventory and from publishing.
// Callers hold mu.
func (c *Controller) phase(view inventory.View, failed error) Phase {
	switch {
	case failed != nil:
		return c.state.Phase
	case len(view.Health) > 0:
		return Published
	case errors.Is(view.ScanErr, gpu.ErrNotReady):
		return NoDriver
	case view.ScanErr != nil:
		return Looking
	default:
		return NoGPUs
	}
}

// enter records the state, and logs it if its text has changed. Callers hold mu.
func (c *Controller) enter(ctx context.Context, view inventory.View, failed, err error) {
	if phase := c.phase(view, failed); phase != c.state.Phase {
		c.state.Since, c.state.Phase = c.clock.Now(), phase
	}
	c.state.Err = err
	devices := c.devices(view)
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

// warnTooOld logs once why the node does not offer everything that it could.
func (c *Controller) warnTooOld(ctx context.Context, describe catalog.Catalog) {
	old := c.sources.Features.Now().OldVersion
	if old == "" || c.warned || !describe.WantsCounters() {
		return
	}
	c.warned = true
	klog.FromContext(ctx).Info("No MIG on demand, no time slices: the API server is too old", "apiServer", old, "needed", cluster.CountersHold,
		"why", "a scheduler as old as it would promise a GPU as a whole and in these forms at once", "remedy", "upgrade both, and restart this agent")
}

// logWithheld logs what the node offers but some GPUs do not allow, if that has
// changed.
func (c *Controller) logWithheld(ctx context.Context, reasons []string) {
	if line := strings.Join(reasons, "; "); line != c.withheld {
		c.withheld = line
		if line != "" {
			klog.FromContext(ctx).Info("Not everything is offered of every GPU", "why", line)
		}
	}
}
