package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
)

// claims are the claims of the node, whose coming and going the controller is
// told of: what a node no longer offers stays published while a claim holds it.
type claims struct {
	*claim.Manager
	controller *controller.Controller
	inventory  *inventory.Inventory
}

// Prepare implements [plugin.Claims].
func (c claims) Prepare(ctx context.Context, object *resourceapi.ResourceClaim) ([]claim.Device, error) {
	devices, err := c.Manager.Prepare(ctx, object)
	if err != nil {
		// Perhaps somebody has changed a GPU behind our back.
		c.inventory.RequestScan()
	}
	c.controller.ClaimsChanged()
	return devices, err
}

// Unprepare implements [plugin.Claims].
func (c claims) Unprepare(ctx context.Context, uid types.UID) error {
	defer c.controller.ClaimsChanged()
	return c.Manager.Unprepare(ctx, uid)
}

// Release implements [plugin.Claims].
func (c claims) Release(ctx context.Context, held claim.Held, object *resourceapi.ResourceClaim) (bool, error) {
	released, err := c.Manager.Release(ctx, held, object)
	if released {
		c.controller.ClaimsChanged()
	}
	return released, err
}

// Recover implements [plugin.Claims].
func (c claims) Recover(ctx context.Context) (claim.Report, error) {
	defer c.controller.ClaimsChanged()
	report, err := c.Manager.Recover(ctx)
	if len(report.Swept) > 0 {
		c.inventory.RequestScan()
	}
	return report, err
}

// held gives the devices that claims hold, and whether as shares.
func (a *agent) held(ctx context.Context) (map[string]bool, error) {
	all, err := a.claims.Held(ctx)
	if err != nil {
		return nil, err
	}
	held := map[string]bool{}
	for _, c := range all {
		for _, d := range c.Devices {
			held[d.Name] = held[d.Name] || d.ShareID != nil
		}
	}
	return held, nil
}
