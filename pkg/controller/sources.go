// SPDX-License-Identifier: Apache-2.0

package controller

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
)

// Sources provide the inputs from which the node's devices are derived.
type Sources struct {
	Inventory  *inventory.Inventory
	NodeConfig *cluster.NodeConfig
	Features   *cluster.Features
	Settings   catalog.Settings
}

// catalog returns the catalog that follows from the present state of the sources.
func (s Sources) catalog() catalog.Catalog {
	config, _ := s.NodeConfig.Now()
	return catalog.New(s.Settings, config, s.Features.Now().Restrictions)
}

// Shares returns the shares that the node offers.
func (s Sources) Shares() catalog.ShareOffer { return s.catalog().Shares }

// Attributes returns the attributes of a device, also the ones that are published only on
// request; nil if the device is not known.
func (s Sources) Attributes(name kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return s.catalog().Attributes(s.Inventory.View().Node, name)
}
