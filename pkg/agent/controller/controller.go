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
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/notify"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// PublishFunc makes the resources what the node publishes. It returns when the
// change is accepted, not when it is written.
type PublishFunc func(ctx context.Context, resources resourceslice.DriverResources) error

// Options are the parts of a [Controller]. All are required.
type Options struct {
	State    *state.State
	Settings catalog.Settings
	Clock    clock.Clock
}

// Controller publishes a node's GPUs. Its methods may be called from any
// goroutine, before and while Run runs.
type Controller struct {
	options Options
	changes notify.Subscribers

	// Of Run alone.

	warned   bool              // that the API server is too old
	withheld string            // the last logged reasons why devices are not offered
	limited  map[string]string // the last logged reason for each GPU why its memory is not limited

	mu         sync.Mutex
	published  *resourceslice.DriverResources // nil before the first time
	state      State
	lastLogged string
}

// New returns a controller that has published nothing yet.
func New(o Options) *Controller {
	return &Controller{options: o, state: State{Phase: Looking, Since: o.Clock.Now()}}
}

// Run publishes until ctx ends. It is called once. It publishes nothing before the
// state is ready.
func (c *Controller) Run(ctx context.Context, publish PublishFunc) {
	changed, cancel := c.options.State.Subscribe()
	defer cancel()
	pause := source.Backoff()
	for {
		var retry <-chan time.Time
		now := c.options.State.Snapshot()
		if now.Ready() {
			if err := c.publishDue(ctx, now, publish); err != nil {
				retry = c.options.Clock.After(pause.Step())
			} else {
				pause = source.Backoff()
			}
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				waiting = c.options.State.Revisions() == now.Revisions
			case <-retry:
				waiting = false
			}
		}
	}
}

// publishDue publishes the node's devices, if they have changed. It publishes nothing before
// the version of the API server is known: the server does not answer, and would accept
// nothing. It returns an error if publishing fails.
func (c *Controller) publishDue(ctx context.Context, now state.Snapshot, publish PublishFunc) error {
	node, devices := now.Node(), now.Catalog(c.options.Settings)
	resources, failed := devices.Resources(node, now.Claimed.Held), now.Features.Err
	due := failed == nil && c.due(now, resources)
	c.warnTooOld(ctx, now, devices)
	c.logWithheld(ctx, devices.Withheld(node))
	c.logMemoryLimits(ctx, node)

	var unpublished error
	if due {
		if err := publish(ctx, resources); err != nil {
			unpublished = fmt.Errorf("publish the node's devices: %w", err)
			failed = unpublished
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // the end of the agent is not a state to report
	}

	c.mu.Lock()
	if due && failed == nil {
		c.published = &resources
	}
	c.state.Unpublished = failed != nil
	c.enter(ctx, now, failed, errors.Join(now.Missing(), failed, now.Faults(), now.Topology(), now.Configuration.Problem, now.Conditions.Repairs))
	c.mu.Unlock()
	if due {
		c.changes.Notify()
	}
	return unpublished
}

// due reports whether the resources differ from the published ones. If the first scan
// fails for another reason than a missing driver, the state of the GPUs is unknown,
// and the slices of an earlier process stay.
func (c *Controller) due(now state.Snapshot, resources resourceslice.DriverResources) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.published == nil {
		return now.Hardware.Err == nil || errors.Is(now.Hardware.Err, gpu.ErrNotReady)
	}
	return !equality.Semantic.DeepEqual(*c.published, resources)
}

// phase returns the phase that follows from the inventory and from publishing.
// Callers hold mu.
func (c *Controller) phase(now state.Snapshot, failed error) Phase {
	switch {
	case failed != nil:
		return c.state.Phase
	case len(now.Hardware.GPUs) > 0:
		return Published
	case errors.Is(now.Hardware.Err, gpu.ErrNotReady):
		return NoDriver
	case now.Hardware.Err != nil:
		return Looking
	default:
		return NoGPUs
	}
}

// enter records the state, and logs it if its text has changed. Callers hold mu.
func (c *Controller) enter(ctx context.Context, now state.Snapshot, failed, err error) {
	if phase := c.phase(now, failed); phase != c.state.Phase {
		c.state.Since, c.state.Phase = c.options.Clock.Now(), phase
	}
	c.state.Err = err
	devices := c.devices(now)
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
func (c *Controller) warnTooOld(ctx context.Context, now state.Snapshot, devices catalog.Catalog) {
	old := now.Features.OldVersion
	if old == "" || c.warned || !devices.WantsCounters() {
		return
	}
	c.warned = true
	klog.FromContext(ctx).Info("No MIG on demand, no time slices: the API server is too old", "apiServer", old, "needed", state.CountersHoldSince,
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

// logMemoryLimits logs whether the memory of containers can be limited on each GPU, if that
// has changed.
func (c *Controller) logMemoryLimits(ctx context.Context, node gpu.Node) {
	before := c.limited
	c.limited = make(map[string]string, len(node.GPUs))
	for _, g := range node.GPUs {
		device := g.Address.DeviceName()
		c.limited[device] = g.NoMemoryLimits
		switch last, known := before[device]; {
		case known && last == g.NoMemoryLimits:
		case g.MemoryLimits:
			klog.FromContext(ctx).Info("The driver limits the GPU memory of containers", "device", device)
		default:
			klog.FromContext(ctx).Info("The driver does not limit the GPU memory of containers", "device", device, "why", g.NoMemoryLimits)
		}
	}
}
