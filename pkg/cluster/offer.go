// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/notify"
)

// Offer is what the node offers: what its label says, or the standard offer if it
// has no label. Its methods may be called from any goroutine.
type Offer struct {
	standard catalog.Offer
	known    chan struct{} // closed once the label was read, or could not be read
	changes  notify.Subscribers

	mu  sync.Mutex
	now catalog.Offer
	err error
}

// NewOffer returns the offer of a node whose label is not known yet.
func NewOffer(standard catalog.Offer) *Offer {
	return &Offer{standard: standard, now: standard, known: make(chan struct{})}
}

// SetNode takes the labels of the node, or the error of reading it. A label that
// cannot be read or understood leaves the offer as it is.
func (o *Offer) SetNode(node Node, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, beforeErr := o.now, o.err
	offer, err := o.read(node, err)
	if err == nil {
		o.now, o.err = offer, nil
	} else {
		o.err = fmt.Errorf("%w; the node still offers %q", err, before)
	}
	select {
	case <-o.known:
		if o.now != before || fmt.Sprint(o.err) != fmt.Sprint(beforeErr) {
			o.changes.Notify()
		}
	default:
		close(o.known)
	}
}

// read returns the offer that the node's label asks for.
func (o *Offer) read(node Node, err error) (catalog.Offer, error) {
	if err != nil {
		return catalog.Offer{}, fmt.Errorf("the node's label %s is out of reach: %w", v1alpha1.LabelOffer, err)
	}
	value, labelled := node.Labels[v1alpha1.LabelOffer]
	if !labelled {
		return o.standard, nil
	}
	offer, err := catalog.ParseOfferLabel(value)
	if err != nil {
		return catalog.Offer{}, fmt.Errorf("the node's label %s=%s is not followed: %w; write words with a dot between them, such as share.mig", v1alpha1.LabelOffer, value, err)
	}
	return offer, nil
}

// Now returns the present offer, and why the node's label is not followed; nil if
// it is.
func (o *Offer) Now() (catalog.Offer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now, o.err
}

// Known is closed once SetNode was called.
func (o *Offer) Known() <-chan struct{} { return o.known }

// Subscribe returns a channel that has an item after each change until cancel is
// called.
func (o *Offer) Subscribe() (changed <-chan struct{}, cancel func()) { return o.changes.Subscribe() }
