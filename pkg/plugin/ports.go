// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// Claims is the life of claims.
type Claims interface {
	// Prepare is idempotent. Its error says what is wrong and what to do.
	Prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]claim.Device, error)
	// Unprepare is idempotent; an unknown claim is no error.
	Unprepare(ctx context.Context, uid types.UID) error
	// Held lists the claims that hold devices, ordered by namespace and name.
	Held(ctx context.Context) ([]claim.Held, error)
	// Unneeded returns why this node need not hold a claim, or "" if it must: object
	// is the claim in the API, nil if it is gone.
	Unneeded(held claim.Held, object *resourceapi.ResourceClaim) string
	// Release unprepares a claim that is unneeded and has not changed since it was
	// listed. It reports whether it did.
	Release(ctx context.Context, held claim.Held, object *resourceapi.ResourceClaim) (bool, error)
	// Recover brings to rest what is half done and repairs what is prepared.
	Recover(ctx context.Context) (claim.Report, error)
}

// Devices is what is known of the node's published devices.
type Devices interface {
	// Health of every published device, ordered by name.
	Health() []Health
	// Subscribe gives a channel that has an item after a change, until cancel.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Health is the health of one published device.
type Health struct {
	Device  string
	Healthy bool
	// Message says what is wrong with an unhealthy device.
	Message string
}
