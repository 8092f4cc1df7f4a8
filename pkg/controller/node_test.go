// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// parts are what a test's node is made of. Held, Switched, Exclusive, Kept, Taken, Node, Version, Plugins,
// DriverLoad and Faults may be nil.
type parts struct {
	Hardware   inventory.Hardware
	Publish    controller.PublishFunc
	Held       func(context.Context) (catalog.Held, error)
	Switched   inventory.ModesFunc
	Exclusive  inventory.ModesFunc
	Kept       inventory.KeptFunc
	Taken      func(context.Context) (catalog.Taken, error)
	Node       cluster.NodeFunc
	Version    cluster.VersionFunc
	Plugins    inventory.ExternalSource
	DriverLoad inventory.DriverLoadFunc
	Faults     *store.Store
	BootID     string
	Catalog    catalog.Catalog
}

// node is a controller with its sources, put together as in the agent.
type node struct {
	*controller.Controller
	controller.Sources
	parts   parts
	holders *inventory.Holders
}

func newNode(p parts) *node {
	n := &node{parts: p}
	n.holders = inventory.NewHolders(func(ctx context.Context) (map[kind.Name]bool, error) {
		if p.Held == nil {
			return nil, nil
		}
		return p.Held(ctx)
	}, func(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
		if p.Switched == nil {
			return nil, nil
		}
		return p.Switched(ctx)
	}, func(ctx context.Context) (map[gpu.PCIAddress]bool, error) {
		if p.Exclusive == nil {
			return nil, nil
		}
		return p.Exclusive(ctx)
	}, func(ctx context.Context) (map[string]bool, error) {
		if p.Kept == nil {
			return nil, nil
		}
		return p.Kept(ctx)
	})
	settings := p.Catalog.Settings
	settings.Selection = kind.Selection{Level: kind.LevelAll}
	config := cluster.NewNodeConfig(cluster.NodeConfigOptions{Standard: p.Catalog.NodeConfig})
	n.Sources = controller.Sources{
		Inventory: inventory.New(inventory.Options{
			Hardware: p.Hardware, DriverLoad: p.DriverLoad, External: p.Plugins,
			StaticMIG: p.Catalog.MIG.Static, Faults: p.Faults, BootID: p.BootID, Clock: clock.RealClock{},
		}),
		NodeConfig: config,
		Features:   cluster.NewFeatures(p.Version),
		Settings:   settings,
	}
	n.Controller = controller.New(controller.Options{Sources: n.Sources, Holders: n.holders, Taken: p.Taken, Clock: clock.RealClock{}})
	return n
}

// Run runs the controller and its sources until ctx ends.
func (n *node) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { n.Inventory.Run(ctx, n.holders) })
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

func (n *node) GPU(ctx context.Context, address gpu.PCIAddress) (gpu.GPU, error) {
	return n.Inventory.GPU(ctx, address)
}

func (n *node) GPUs(ctx context.Context) ([]gpu.GPU, error) { return n.Inventory.GPUs(ctx) }

func (n *node) HandleError(ctx context.Context, err error, msg string) {
	n.Features.HandleError(ctx, err, msg)
}
