// SPDX-License-Identifier: Apache-2.0

package controller

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
)

// Sources know what the node's devices follow from.
type Sources struct {
	Inventory *inventory.Inventory
	Offer     *cluster.Offer
	Features  *cluster.Features
	// Settings are the parts of the catalog that do not change while the agent runs.
	Settings catalog.Catalog
}

// catalog returns the catalog that the sources make now.
func (s Sources) catalog() catalog.Catalog {
	c, support := s.Settings, s.Features.Now()
	c.Offer, _ = s.Offer.Now()
	c.Exclusive, c.NoCounters = !support.Shares, !support.Counters
	return c
}

// Attributes returns the attributes with which a device is published; nil if the
// device is not known.
func (s Sources) Attributes(name kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	return s.catalog().Attributes(s.Inventory.View().Node, name)
}
