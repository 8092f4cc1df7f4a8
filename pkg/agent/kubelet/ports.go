// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// Claims prepares and releases claims.
type Claims interface {
	// Prepare is idempotent. Its error includes the cause and the remedy. The functions onRetry
	// are called with the error of each attempt that is repeated.
	Prepare(ctx context.Context, c *resourceapi.ResourceClaim, onRetry ...func(error)) ([]claim.Device, error)
	// PrepareAgain is Prepare for a claim that is prepared. The error is [claim.ErrUnprepared] if it is not.
	PrepareAgain(ctx context.Context, c *resourceapi.ResourceClaim, onRetry ...func(error)) ([]claim.Device, error)
	// Unprepare is idempotent. It succeeds if the claim is unknown.
	Unprepare(ctx context.Context, uid types.UID) error
}

// Ledger has what claims hold.
type Ledger interface {
	// Changed says that a claim may hold other devices than before.
	Changed()
	// SetRefused sets whether a claim could not be unprepared because of its processes.
	SetRefused(uid types.UID, refused bool)
}

// Hardware is the inventory of the node's GPUs.
type Hardware interface {
	// PrepareFailed requests a scan if the last one does not explain the error of a failed
	// prepare.
	PrepareFailed(err error)
}

// Accounts follow the pods of claims, and charge claims for their devices.
type Accounts interface {
	// Seen has the pods of a claim that this node prepares.
	Seen(object *resourceapi.ResourceClaim)
	// Held charges a prepared claim for its devices from now on.
	Held(object *resourceapi.ResourceClaim, devices []claim.Device)
	// Released forgets a claim that holds no devices any more.
	Released(uid types.UID)
}

// Devices reports the health of the node's published devices.
type Devices interface {
	// Health returns the health of every published device, ordered by name.
	Health() []Health
	// Subscribe returns a channel that has an item after a change, until cancel is
	// called.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Health is the health of one published device.
type Health struct {
	Device  string
	Healthy bool
	// Message is the reason why a device is unhealthy.
	Message string
}

// Observer records the calls. Its methods are called concurrently and do not block.
type Observer interface {
	// Prepared and Unprepared record an attempt. refusal is the [report.Reason] of a failure.
	Prepared(kinds string, took time.Duration, refusal string)
	Unprepared(took time.Duration, err error)
	// PublishFailed records a failure to publish ResourceSlices.
	PublishFailed(reason string)
}
