// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// parts are what a test's node is made of. Claims, Node, Version, Plugins, DriverLoad and
// Faults may be nil.
type parts struct {
	Hardware   inventory.Hardware
	Publish    controller.PublishFunc
	Claims     func() (state.Claimed, error)
	Node       cluster.NodeFunc
	Version    cluster.VersionFunc
	Plugins    inventory.ExternalSource
	DriverLoad inventory.DriverLoadFunc
	Faults     *store.Store
	BootID     string
	Catalog    catalog.Catalog
}

// node is a controller with the writers of the state, put together as in the agent.
type node struct {
	*controller.Controller
	Inventory  *inventory.Inventory
	NodeConfig *cluster.NodeConfig
	Features   *cluster.Features
	Claims     claims
	state      *state.State
	settings   catalog.Settings
	parts      parts
}

// claims write the claims of a test, and keep the last ones if they cannot be read.
type claims struct {
	read  func() (state.Claimed, error)
	table *state.Table[state.Claimed]
}

func (c claims) Read(context.Context) state.Claimed {
	if c.read != nil {
		if now, err := c.read(); err == nil {
			c.table.Set(now)
		}
	}
	return c.table.Get()
}

func newNode(p parts) *node {
	s := state.New(state.Features{})
	settings := p.Catalog.Settings
	settings.Selection = kind.Selection{Level: kind.LevelAll}
	n := &node{
		Inventory: inventory.New(inventory.Options{
			State: s, Hardware: p.Hardware, DriverLoad: p.DriverLoad, External: p.Plugins,
			StaticMIG: p.Catalog.MIG.Static, Faults: p.Faults, BootID: p.BootID, Clock: clock.RealClock{},
		}),
		NodeConfig: cluster.NewNodeConfig(cluster.NodeConfigOptions{Table: &s.Configuration, Standard: p.Catalog.NodeConfig}),
		Features:   cluster.NewFeatures(p.Version, &s.Features),
		Claims:     claims{p.Claims, &s.Claimed},
		state:      s, settings: settings, parts: p,
	}
	n.Controller = controller.New(controller.Options{State: s, Claims: n.Claims, NodeConfig: n.NodeConfig, Features: n.Features, Settings: settings, Clock: clock.RealClock{}})
	return n
}

// Run runs the controller and its sources until ctx ends.
func (n *node) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.Inventory.Run(ctx, n.Claims) })
	running.Go(func() { n.Controller.Run(ctx, n.parts.Publish) })
	if n.parts.Node == nil {
		n.NodeConfig.SetNode(cluster.Node{}, nil)
	} else {
		n.parts.Node(ctx, func(node cluster.Node, err error) {
			if err == nil {
				n.Inventory.SetDevicePlugin(node.DevicePlugin)
				n.Inventory.SetRepaired(node.Annotations[v1alpha1.AnnotationRepaired])
			}
			n.NodeConfig.SetNode(node, err)
		})
	}
	running.Wait()
}

func (n *node) GPU(ctx context.Context, address gpu.PCIAddress) (use.GPU, error) {
	return n.state.GPU(ctx, address)
}

func (n *node) GPUs(ctx context.Context) ([]use.GPU, error) { return n.state.GPUs(ctx) }

func (n *node) HandleError(ctx context.Context, err error, msg string) {
	n.Features.HandleError(ctx, err, msg)
}
