// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/notify"
)

// NodeConfigOptions are the inputs of a [NodeConfig] that do not change.
type NodeConfigOptions struct {
	// Standard is the configuration of a node whose labels select no other one.
	Standard catalog.NodeConfig
	// Named is set if there are named configurations: [NodeConfig.SetNamed] is called.
	Named bool
	// Layouts is set if there are layouts: [NodeConfig.SetLayouts] is called.
	Layouts bool
	// LayoutLabel is set if [v1alpha1.LabelMIGConfig] names the layout.
	LayoutLabel bool
}

// NodeConfig is the configuration of the node: the one that [v1alpha1.LabelConfig]
// names, or else the standard one, with the offer of [v1alpha1.LabelOffer] and the layout
// of [v1alpha1.LabelMIGConfig] if the node has those labels. Its methods may be called
// from any goroutine.
//
// An input that cannot be read or understood leaves the configuration as it is.
type NodeConfig struct {
	NodeConfigOptions
	known   chan struct{} // closed once every input is known
	changes notify.Subscribers

	mu      sync.Mutex
	labels  input[map[string]string]
	named   input[map[string]catalog.NodeConfig]
	layouts input[migconfig.File]
	now     catalog.NodeConfig
	err     error
}

// input is the last good value of an input, and why there is no later one.
type input[T any] struct {
	value T
	err   error
	known bool
}

func (i *input[T]) set(value T, err error) {
	if i.err, i.known = err, true; err == nil {
		i.value = value
	}
}

// NewNodeConfig returns the configuration of a node whose labels are not known yet.
func NewNodeConfig(o NodeConfigOptions) *NodeConfig {
	c := &NodeConfig{NodeConfigOptions: o, now: o.Standard, known: make(chan struct{})}
	c.named.known, c.layouts.known = !o.Named, !o.Layouts
	if o.Standard.Layout != "" {
		// Without its layout the node would offer other MIG devices.
		c.now.Offer.MIG = false
	}
	return c
}

// SetNode takes the labels of the node, or the error of reading it.
func (c *NodeConfig) SetNode(node Node, err error) {
	if err != nil {
		err = fmt.Errorf("the node's labels are out of reach: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.labels.set(node.Labels, err)
	c.update()
}

// SetNamed takes the named configurations, or the error of reading them.
func (c *NodeConfig) SetNamed(configs map[string]catalog.NodeConfig, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named.set(configs, err)
	c.update()
}

// SetLayouts takes the layouts of MIG devices, or the error of reading them.
func (c *NodeConfig) SetLayouts(layouts migconfig.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.layouts.set(layouts, err)
	c.update()
}

// update derives the configuration from the inputs. Callers hold mu.
func (c *NodeConfig) update() {
	if !c.labels.known || !c.named.known || !c.layouts.known {
		return
	}
	before, beforeErr := c.now, c.err
	config, err := c.selected()
	if err == nil {
		c.now = config
	}
	if c.err = errors.Join(c.labels.err, c.named.err, c.layouts.err, err); c.err != nil {
		c.err = fmt.Errorf("%w; the node still offers %q", c.err, c.now.Offer)
	}
	select {
	case <-c.known:
		if !reflect.DeepEqual(c.now, before) || fmt.Sprint(c.err) != fmt.Sprint(beforeErr) {
			c.changes.Notify()
		}
	default:
		close(c.known)
	}
}

// selected returns the configuration that the node's labels select.
func (c *NodeConfig) selected() (catalog.NodeConfig, error) {
	config := c.Standard
	if name, labelled := c.labels.value[v1alpha1.LabelConfig]; labelled {
		var named bool
		if config, named = c.named.value[name]; !named {
			return config, fmt.Errorf("the node's label %s=%s is not followed: %w: there is no such configuration; known are: %s",
				v1alpha1.LabelConfig, name, gpu.ErrNotFound, cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.named.value)), ", "), "none"))
		}
	}
	if offer, labelled := c.labels.value[v1alpha1.LabelOffer]; labelled {
		var err error
		if config.Offer, err = catalog.ParseOfferLabel(offer); err != nil {
			return config, fmt.Errorf("the node's label %s=%s is not followed: %w; write words with a dot between them, such as share.mig", v1alpha1.LabelOffer, offer, err)
		}
	}
	if name, labelled := c.labels.value[v1alpha1.LabelMIGConfig]; labelled && c.LayoutLabel && name != "" {
		config.Layout = name
	}
	if config.Layout != "" {
		if config.MIG.Static {
			return config, fmt.Errorf("MIG configuration %q: %w: an administrator makes the MIG devices of this node (--mig=static)", config.Layout, gpu.ErrInvalid)
		}
		var err error
		if config.MIG.Config, err = c.layouts.value.Config(config.Layout); err != nil {
			return config, err
		}
	}
	return config, nil
}

// Now returns the present configuration, and why an input is not followed; nil if all
// are.
func (c *NodeConfig) Now() (catalog.NodeConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.err
}

// Known is closed once every input was set.
func (c *NodeConfig) Known() <-chan struct{} { return c.known }

// Subscribe returns a channel that has an item after each change until cancel is
// called.
func (c *NodeConfig) Subscribe() (changed <-chan struct{}, cancel func()) {
	return c.changes.Subscribe()
}
