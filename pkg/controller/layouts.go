// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Layouts holds the last valid layout of the node's GPUs. Its methods may be called from
// any goroutine.
type Layouts struct {
	config *cluster.NodeConfig

	mu    sync.Mutex
	last  *catalog.Layout
	known bool // there was a valid layout
}

// NewLayouts returns the layouts of a node with the configuration. None is known yet.
func NewLayouts(config *cluster.NodeConfig) *Layouts { return &Layouts{config: config} }

// update returns the layout that the offer makes of the node. If it is not valid for the
// node, the last valid one stays; before the first one all GPUs are whole.
func (l *Layouts) update(offer catalog.MIGOffer, node gpu.Node) (*catalog.Layout, error) {
	layout, err := offer.Layout(node)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(node.GPUs) == 0:
		return nil, nil
	case err == nil:
		l.last, l.known = layout, true
		return layout, nil
	case l.known:
		return l.last, fmt.Errorf("%w; the node keeps the layout that it had", err)
	default:
		return &catalog.Layout{}, fmt.Errorf("%w; the node offers no MIG devices", err)
	}
}

// Keeps reports whether a MIG device stays when no claim uses it. Until a layout is known,
// all stay if the node keeps any.
func (l *Layouts) Keeps(name kind.Name) bool {
	config, _ := l.config.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return config.MIG.Keep && !config.MIG.Static && (!l.known || config.Offer.MIG && l.last.Has(name))
}
