package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	// asking has room for one question: answers come in order, and the kubelet
	// refuses a client that asks more than a few at once.
	asking chan struct{}
	known  chan struct{} // closed once they were asked
	seen   chan struct{} // has an item when the node has a plugin that it had not

	// Guarded by the controller's mu.

	present bool // the node has a plugin
	lent    []gpu.Lent
	err     error // of asking last
	// begun counts questions. What is known is the answer to the one numbered
	// answered.
	begun, answered int
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
	pause := backoff()
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
			pause, again = backoff(), c.clock.After(lentTime)
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
// given to a claim. Calls that wait for each other share a question that began
// after all of them. If it is not answered, what was said last holds.
func (c *Controller) CheckLent(ctx context.Context) {
	if c.plugins != nil && c.mayLend() {
		c.askLent(ctx)
	}
}

// askLent asks the device plugins and publishes what follows, unless somebody
// has done so since the call. It reports whether they have answered.
func (c *Controller) askLent(ctx context.Context) bool {
	c.mu.Lock()
	before := c.borrowed.begun
	c.mu.Unlock()
	select {
	case c.borrowed.asking <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-c.borrowed.asking }()
	if since, well := c.answeredSince(before); since {
		return well
	}
	lent, err := c.plugins.Lent(ctx)
	if ctx.Err() != nil {
		return false
	}
	logger := klog.FromContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.borrowed.answered = c.borrowed.begun
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

// answeredSince reports whether a question after the one of that number has been
// asked, and answered well. Otherwise the caller is to ask, and it is counted.
func (c *Controller) answeredSince(number int) (since, well bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.borrowed.answered > number {
		return true, c.borrowed.err == nil
	}
	c.borrowed.begun++
	return false, false
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
