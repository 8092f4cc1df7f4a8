// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Claims prepares, lists and releases the claims of this node.
type Claims interface {
	// Prepare is idempotent. Its error includes the cause and the remedy. The functions onRetry
	// are called with the error of each attempt that is repeated.
	Prepare(ctx context.Context, c *resourceapi.ResourceClaim, onRetry ...func(error)) ([]claim.Device, error)
	// Unprepare is idempotent. It succeeds if the claim is unknown.
	Unprepare(ctx context.Context, uid types.UID) error
	// Held returns the claims that hold devices, ordered by namespace and name.
	Held(ctx context.Context) ([]claim.Claim, error)
	// LostSpecs returns the prepared claims without a CDI spec.
	LostSpecs(ctx context.Context) ([]types.UID, error)
	// WhyUnneeded returns the reason why this node need not hold a claim, or "" if it
	// must. object is the claim in the API, or nil if it is gone.
	WhyUnneeded(held claim.Claim, object *resourceapi.ResourceClaim) string
	// RecordPods records the pods of a claim that this node must hold. object is the claim
	// in the API.
	RecordPods(ctx context.Context, held claim.Claim, object *resourceapi.ResourceClaim) error
	// RecordConsumers records the pods on the node that have devices of each prepared claim.
	RecordConsumers(ctx context.Context) error
	// ForeignProcesses lists the processes of pods without a claim on held devices. held are
	// the claims that have just been compared with the API. checked are the devices on
	// which all of them are known.
	ForeignProcesses(ctx context.Context, held []claim.Claim) (found []claim.ForeignProcess, checked []kind.Name, err error)
	// CheckLimits lists the containers that compute without the memory limit of their
	// claim. It returns a check for each device with limited containers.
	CheckLimits(ctx context.Context) ([]claim.LimitCheck, error)
	// Release unprepares an unneeded claim if it has not changed since it was listed.
	// It reports whether it did.
	Release(ctx context.Context, held claim.Claim, object *resourceapi.ResourceClaim) (bool, error)
	// Recover undoes half-prepared claims and repairs prepared ones.
	Recover(ctx context.Context) (claim.Report, error)
}

// Ledger has what claims hold.
type Ledger interface {
	// Changed says that a claim may hold other devices than before.
	Changed()
	// SetRefused sets whether a claim could not be unprepared because of its processes.
	SetRefused(uid types.UID, refused bool)
	// IsRefused returns what SetRefused has set last.
	IsRefused(uid types.UID) bool
	// SetContested replaces the findings of the last round: claims that hold devices
	// which they need or do not need according to the API, and foreign processes. New claims
	// must get no device of an unneeded claim or with a foreign process. A claim in neither
	// list could not be compared, and the last finding about it stays.
	SetContested(needed, unneeded []types.UID, foreign []claim.ForeignProcess)
}

// Foreign serves the last findings about processes of pods without a claim.
type Foreign interface {
	// SetForeignProcesses replaces the findings. checked are the devices on which all foreign processes
	// are known.
	SetForeignProcesses(found []claim.ForeignProcess, checked []kind.Name)
}

// Hardware is the inventory of the node's GPUs.
type Hardware interface {
	// RequestScan makes it scan the hardware soon.
	RequestScan()
	// PrepareFailed requests a scan if the last one does not explain the error of a failed
	// prepare.
	PrepareFailed(err error)
}

// Accounts follow the pods of claims, and charge claims for their devices.
type Accounts interface {
	// Seen has the pods of a claim that this node prepares, or must hold.
	Seen(object *resourceapi.ResourceClaim)
	// Held charges a prepared claim for its devices from now on.
	Held(object *resourceapi.ResourceClaim, devices []claim.Device)
	// Released forgets a claim that holds no devices any more.
	Released(uid types.UID)
	// PodsOf returns the names of the pods of a claim, as far as they are known.
	PodsOf(ctx context.Context, ref claim.Ref) map[types.UID]string
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
