// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/usage"
)

// notifyingClaims are the claims of the node. They notify the controller of changes:
// a device that the node no longer offers stays published while a claim holds it. They also
// meter for how long claims hold devices, and keep the names of their pods.
type notifyingClaims struct {
	*claim.Manager
	controller *controller.Controller
	inventory  *inventory.Inventory
	pods       *podNames
	meter      *usage.Meter
	rescan     *rescan
	contested  *contested
	// node returns what claims can hold.
	node func() usage.Node
}

// Prepare implements [plugin.Claims].
func (c notifyingClaims) Prepare(ctx context.Context, object *resourceapi.ResourceClaim) ([]claim.Device, error) {
	c.pods.observe(object)
	devices, err := c.Manager.Prepare(ctx, object)
	if err != nil {
		c.rescan.failed(err)
	} else {
		c.contested.setRefused(object.UID, false)
		c.meter.Hold(object.UID, c.node().Charges(object.Namespace, devices))
	}
	c.controller.ClaimsChanged()
	return devices, err
}

// Unneeded implements [plugin.Claims].
func (c notifyingClaims) Unneeded(held claim.Held, object *resourceapi.ResourceClaim) string {
	why := c.Manager.Unneeded(held, object)
	if why == "" {
		c.pods.observe(object)
	}
	return why
}

// Unprepare implements [plugin.Claims].
func (c notifyingClaims) Unprepare(ctx context.Context, uid types.UID) error {
	defer c.controller.ClaimsChanged()
	err := c.Manager.Unprepare(ctx, uid)
	if err == nil {
		c.release(uid)
	}
	c.contested.setRefused(uid, errors.Is(err, gpu.ErrInUse))
	return err
}

// SetContested implements [plugin.Claims].
func (c notifyingClaims) SetContested(needed, unneeded []types.UID, strangers []claim.Stranger) {
	c.contested.set(needed, unneeded, strangers)
	c.controller.ClaimsChanged()
}

// Release implements [plugin.Claims].
func (c notifyingClaims) Release(ctx context.Context, held claim.Held, object *resourceapi.ResourceClaim) (bool, error) {
	released, err := c.Manager.Release(ctx, held, object)
	if released {
		c.release(held.UID)
		c.controller.ClaimsChanged()
	}
	return released, err
}

func (c notifyingClaims) release(uid types.UID) {
	c.meter.Release(uid)
	c.pods.forget(uid)
}

// Recover implements [plugin.Claims].
func (c notifyingClaims) Recover(ctx context.Context) (claim.Report, error) {
	defer c.controller.ClaimsChanged()
	report, err := c.Manager.Recover(ctx)
	if len(report.Swept) > 0 {
		c.inventory.RequestScan()
	}
	return report, err
}

// takenMemory returns a function that reads the memory that claims take of devices.
// Shares of unknown size, of claims without a readable record, are left out.
func takenMemory(claims *claim.Manager) func(ctx context.Context) (catalog.Taken, error) {
	const all = 1 << 62 // more than a device has
	return func(ctx context.Context) (catalog.Taken, error) {
		held, err := claims.Held(ctx)
		if err != nil {
			return nil, err
		}
		taken := catalog.Taken{}
		for _, c := range held {
			for _, d := range c.Devices {
				switch {
				case d.Name.Kind.Takes() != kind.TakesMemory || d.Terms.IsUnknown():
				case d.Terms.Share == nil:
					taken[d.Name.String()] = all
				default:
					taken[d.Name.String()] += d.Terms.Memory()
				}
			}
		}
		return taken, nil
	}
}

// heldDevices returns a function that reads the devices that claims hold, and for
// each whether its allocation has a share ID.
func heldDevices(claims *claim.Manager) inventory.HeldFunc {
	return func(ctx context.Context) (map[kind.Name]bool, error) {
		all, err := claims.Held(ctx)
		if err != nil {
			return nil, err
		}
		held := map[kind.Name]bool{}
		for _, c := range all {
			for _, d := range c.Devices {
				held[d.Name] = held[d.Name] || d.ShareID != nil
			}
		}
		return held, nil
	}
}
