// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Claims lists, examines and releases the claims of this node.
type Claims interface {
	// Held returns the claims that hold devices, ordered by namespace and name.
	Held(ctx context.Context) ([]claim.Claim, error)
	// LostSpecs returns the prepared claims whose GPUs answer, but with whose CDI spec no container starts.
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
	// IsRefused reports whether a claim could not be unprepared because of its processes.
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
}

// Accounts follow the pods of claims.
type Accounts interface {
	// Seen has the pods of a claim that this node must hold.
	Seen(object *resourceapi.ResourceClaim)
	// Released forgets a claim that holds no devices any more.
	Released(uid types.UID)
}

// Reporter tells users what was found.
type Reporter interface {
	// Prepared reports on prepared claims, with the findings about their devices.
	Prepared(ctx context.Context, holders []report.Holder, found report.Findings)
	// Interrupted reports on claims that were released after their daemon has ended.
	Interrupted(ctx context.Context, daemons []report.MPSDaemon)
	// Released forgets a claim that holds no devices any more.
	Released(uid types.UID)
}

// Observer records what is found. Its methods do not block. All but Unprepared replace the last
// number; UnlimitedContainers has none for a device on which they are unknown.
type Observer interface {
	// Unprepared records an attempt to release a claim.
	Unprepared(took time.Duration, err error)
	HeldBack(claims int)
	ForeignDevices(devices int)
	ForeignProcesses(byDevice map[string]int)
	UnlimitedContainers(byDevice map[string]int)
}

// Tasks records the tasks of a loop, which do not overlap. Begin returns the end of a task.
type Tasks interface{ Begin() (end func()) }
