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
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/ledger"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
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
	Claims     func() (claimed, error)
	Node       cluster.NodeFunc
	Version    cluster.VersionFunc
	Plugins    inventory.ExternalSource
	DriverLoad inventory.DriverLoadFunc
	Faults     *store.Store
	BootID     string
	Catalog    catalog.Inputs
}

// node is a controller with the writers of the state, put together as in the agent.
type node struct {
	*controller.Controller
	Inventory  *inventory.Inventory
	NodeConfig *cluster.NodeConfig
	Features   *cluster.Features
	Ledger     *ledger.Ledger
	state      *state.State
	settings   catalog.Settings
	parts      parts
}

// claimed has the held devices and the changed settings.
type claimed struct {
	devices             []claim.Device
	switched, exclusive map[gpu.PCIAddress]bool
	kept                map[string]bool
}

// claims is a fake of [ledger.Claims].
type claims func() (claimed, error)

func (c claims) Held(context.Context) ([]claim.Claim, error) {
	now, err := c()
	return []claim.Claim{{Devices: now.devices}}, err
}

func (c claims) SwitchedModes(context.Context) (map[gpu.PCIAddress]bool, error) {
	now, err := c()
	return now.switched, err
}

func (c claims) ExclusiveGPUs(context.Context) (map[gpu.PCIAddress]bool, error) {
	now, err := c()
	return now.exclusive, err
}

func (c claims) KeptPartitions(context.Context) (map[string]bool, error) {
	now, err := c()
	return now.kept, err
}

func newNode(p parts) *node {
	s := state.New(state.Fixed{})
	if p.Claims == nil {
		p.Claims = func() (claimed, error) { return claimed{}, nil }
	}
	settings := p.Catalog.Settings
	settings.Selection = kind.Selection{Level: kind.LevelAll}
	n := &node{
		Inventory: inventory.New(inventory.Options{
			State: s, Hardware: p.Hardware, DriverLoad: p.DriverLoad, External: p.Plugins,
			StaticMIG: p.Catalog.MIG.Static, Faults: p.Faults, BootID: p.BootID, Clock: clock.RealClock{},
		}),
		NodeConfig: cluster.NewNodeConfig(cluster.NodeConfigOptions{Table: &s.Configuration, Standard: p.Catalog.NodeConfig}),
		Features:   cluster.NewFeatures(p.Version, &s.Features),
		Ledger:     ledger.New(claims(p.Claims), &s.Claimed, clock.RealClock{}),
		state:      s, settings: settings, parts: p,
	}
	n.Controller = controller.New(controller.Options{State: s, Settings: settings, Clock: clock.RealClock{}})
	return n
}

// Run runs the controller and the writers of the state until ctx ends.
func (n *node) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.Inventory.Run(ctx, n.Ledger) })
	running.Go(func() { n.Ledger.Run(ctx) })
	running.Go(func() { n.NodeConfig.Run(ctx, n.state, n.Ledger) })
	running.Go(func() { n.Features.Run(ctx) })
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
