// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/notify"
)

// NodeConfig is the configuration of the node: the standard one, with the offer that
// the node's label says, if it has one. Its methods may be called from any goroutine.
type NodeConfig struct {
	standard catalog.NodeConfig
	known    chan struct{} // closed once the label was read, or could not be read
	changes  notify.Subscribers

	mu  sync.Mutex
	now catalog.NodeConfig
	err error
}

// NewNodeConfig returns the configuration of a node whose labels are not known yet.
func NewNodeConfig(standard catalog.NodeConfig) *NodeConfig {
	return &NodeConfig{standard: standard, now: standard, known: make(chan struct{})}
}

// SetNode takes the labels of the node, or the error of reading it. A label that
// cannot be read or understood leaves the configuration as it is.
func (c *NodeConfig) SetNode(node Node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, beforeErr := c.now, c.err
	config, err := c.read(node, err)
	if err == nil {
		c.now, c.err = config, nil
	} else {
		c.err = fmt.Errorf("%w; the node still offers %q", err, before.Offer)
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

// read returns the configuration that the node's labels select.
func (c *NodeConfig) read(node Node, err error) (catalog.NodeConfig, error) {
	config := c.standard
	if err != nil {
		return config, fmt.Errorf("the node's label %s is out of reach: %w", v1alpha1.LabelOffer, err)
	}
	value, labelled := node.Labels[v1alpha1.LabelOffer]
	if !labelled {
		return config, nil
	}
	if config.Offer, err = catalog.ParseOfferLabel(value); err != nil {
		return config, fmt.Errorf("the node's label %s=%s is not followed: %w; write words with a dot between them, such as share.mig", v1alpha1.LabelOffer, value, err)
	}
	return config, nil
}

// Now returns the present configuration, and why the node's labels are not followed;
// nil if they are.
func (c *NodeConfig) Now() (catalog.NodeConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.err
}

// Known is closed once SetNode was called.
func (c *NodeConfig) Known() <-chan struct{} { return c.known }

// Subscribe returns a channel that has an item after each change until cancel is
// called.
func (c *NodeConfig) Subscribe() (changed <-chan struct{}, cancel func()) {
	return c.changes.Subscribe()
}
