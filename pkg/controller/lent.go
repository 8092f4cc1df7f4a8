package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// lentTime is how often the device plugins are asked while they have, or could
// give, GPUs to pods. Nobody tells of it.
const lentTime = 10 * time.Second

// pluginResources is the prefix of the resources that device plugins offer
// NVIDIA's GPUs as.
const pluginResources = "nvidia.com/"

// DevicePlugins knows what device plugins have given to pods of this node.
type DevicePlugins interface {
	// Lent gives the GPUs and MIG devices that pods have through them.
	Lent(ctx context.Context) ([]gpu.Lent, error)
}

// borrowed is what is known of device plugins.
type borrowed struct {
	// asking lets the answers come in order.
	asking sync.Mutex
	known  chan struct{} // closed once they were asked
	seen   chan struct{} // has an item when the node has a plugin that it had not

	// Guarded by the controller's mu.

	present bool // the node has a plugin
	lent    []gpu.Lent
	err     error // of asking last
}

// offersByPlugin reports whether a device plugin offers GPUs of the node. What
// it leaves behind when it goes is a capacity of 0.
func offersByPlugin(node *corev1.Node) bool {
	for name, quantity := range node.Status.Capacity {
		if strings.HasPrefix(string(name), pluginResources) && !quantity.IsZero() {
			return true
		}
	}
	return false
}

// watchLent follows what device plugins have given to pods until ctx ends. It
// asks once at the start, for the pods of a plugin that is gone have its GPUs
// still, and then only where there is a plugin or such a pod.
func (c *Controller) watchLent(ctx context.Context) {
	if c.plugins == nil {
		close(c.borrowed.known)
		return
	}
	pause := pauses()
	for first := true; ; first = false {
		well := c.askLent(ctx)
		if first {
			close(c.borrowed.known)
		}
		var again <-chan time.Time
		switch {
		case !well:
			again = c.clock.After(pause.Step())
		case c.mayLend():
			pause, again = pauses(), c.clock.After(lentTime)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.borrowed.seen:
		case <-again:
		}
	}
}

// mayLend reports whether what pods have through device plugins can change, as
// far as is known.
func (c *Controller) mayLend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.borrowed.present || len(c.borrowed.lent) > 0 || c.borrowed.err != nil
}

// CheckLent asks the device plugins anew, if there may be any, before a GPU is
// given to a claim. If they do not answer, what they said last holds.
func (c *Controller) CheckLent(ctx context.Context) {
	if c.plugins != nil && c.mayLend() {
		c.askLent(ctx)
	}
}

// askLent asks the device plugins and publishes what follows. It reports whether
// they have answered.
func (c *Controller) askLent(ctx context.Context) bool {
	c.borrowed.asking.Lock()
	defer c.borrowed.asking.Unlock()
	lent, err := c.plugins.Lent(ctx)
	if ctx.Err() != nil {
		return false
	}
	logger := klog.FromContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if fmt.Sprint(err) != fmt.Sprint(c.borrowed.err) {
			logger.Info("WARNING: it is not known which GPUs device plugins have given to pods; what was known last holds", "err", err)
		}
		c.borrowed.err = err
		return false
	}
	c.borrowed.err = nil
	if !slices.Equal(lent, c.borrowed.lent) {
		logger.Info("GPUs that pods have through device plugins", "devices", lent)
		c.borrowed.lent = lent
		c.inventory.lent = lent
		c.lookAgain()
	}
	return true
}

// pluginSeen takes in whether the node has a device plugin. Callers hold mu.
func (c *Controller) pluginSeen(present bool) {
	if present && !c.borrowed.present {
		select {
		case c.borrowed.seen <- struct{}{}:
		default: // one is waiting already
		}
	}
	c.borrowed.present = present
}
