// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Options of a [Reconciler]. All fields are required unless their comment says otherwise.
type Options struct {
	place.Place
	NodeName string
	Client   kubernetes.Interface
	Claims   Claims
	Ledger   Ledger
	Foreign  Foreign
	Hardware Hardware
	Accounts Accounts
	Reporter Reporter
	Observer Observer
	// Tasks records the tasks. A task that takes longer than [StuckAfter] hangs.
	Tasks Tasks
	Clock clock.WithTicker
	// Conflicts returns the conflicts of a device that a claim holds; may be nil.
	Conflicts func(ctx context.Context, device kind.Name) []report.Conflict
	// Daemons lists the MPS daemons that programs have lost or wait for; nil without a supervisor.
	Daemons func(ctx context.Context) ([]report.MPSDaemon, error)
	// Calls has every call of the kubelet, which may write files.
	Calls place.Calls
	// Interval is the time between two comparisons with the claims in the API. The first
	// comparison is within the first interval, at a time that depends on the node's name.
	Interval time.Duration
}

// Reconciler compares the claims that hold devices with the API and the node.
type Reconciler struct {
	Options
	// repairs has an item if a repair was requested. checks has the callers of
	// [Reconciler.CheckForeign].
	repairs chan struct{}
	checks  chan chan struct{}

	// The other fields are only for the goroutine that runs Run.

	// reads limits the rate at which claims are read from the API. rounds counts the rounds in which a
	// claim was unneeded. compared is when the claims were last compared.
	reads    flowcontrol.RateLimiter
	rounds   rounds
	compared time.Time
	sockets  place.Sockets
	// foreignDevices is the number of devices of another driver in the node's slices.
	foreignDevices int
	// refused has the claims whose files could not be restored in the last repair.
	refused map[types.UID]bool
	// daemons are those of the last comparison.
	daemons []report.MPSDaemon
}

// New returns a reconciler. It does nothing until [Reconciler.Run] runs.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options: o, repairs: make(chan struct{}, 1), checks: make(chan chan struct{}),
		reads: flowcontrol.NewTokenBucketRateLimiter(readsPerSecond, readsAtOnce), sockets: o.Sockets(),
	}
}
