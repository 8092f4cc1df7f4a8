// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Options of a [Reporter]. All fields are required unless their comment says otherwise.
type Options struct {
	DriverName, NodeName string
	Client               kubernetes.Interface
	Claims               Claims
	Pods                 Pods
	Observer             Observer
	Clock                clock.WithTicker
	// Health has the health of GPUs for events to their users; nil creates no events. Records stores
	// the records of these events.
	Health  Health
	Records Records
	// Faults finds the faults of programs for events on the pods that they end; nil creates none.
	Faults Faults
}

// Claims lists the claims of this node.
type Claims interface {
	// Held returns the claims that hold devices, ordered by namespace and name.
	Held(ctx context.Context) ([]claim.Claim, error)
}

// Pods knows the pods of claims.
type Pods interface {
	// PodsOf returns the names of the pods of a claim, as far as they are known.
	PodsOf(ctx context.Context, ref claim.Ref) map[types.UID]string
}

// Health is the health of the node's GPUs.
type Health interface {
	// CauseAt returns the value of the taint of the GPU at an address, and its time. The value is
	// empty for a healthy GPU, and the time is zero if it is not recorded. known is false if the
	// health is not known yet.
	CauseAt(address gpu.PCIAddress) (value string, since time.Time, known bool)
	// Subscribe returns a channel that has an item after a change, until cancel is called.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// Observer records what is written. Its methods are called concurrently and do not block.
type Observer interface {
	// StatusWritten records a write of a claim's status: "ok", "error", or "dropped" if
	// the claim is gone or changed.
	StatusWritten(outcome string)
	// ProgramFault records an XID that ended programs of a namespace: [FaultOwn], [FaultOther] or
	// [FaultUnknown] says whose program made the fault.
	ProgramFault(xid uint64, blame, namespace string)

	// The other methods replace the last number.

	StatusQueue(claims int)
	DisturbedShares(byCause map[string]int)
}

// Reporter reports on the claims of a node.
type Reporter struct {
	Options
	status *statusWriter
	events events
	shares shares
}

// New returns a reporter. It writes nothing until [Reporter.Run] runs.
func New(o Options) *Reporter {
	return &Reporter{Options: o, events: newEvents(o), status: newStatusWriter(o.Client.ResourceV1(), o.DriverName, o.Observer)}
}

// Run writes the queued status and creates events until ctx ends, and then the rest of the queue.
func (r *Reporter) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { r.status.Run(ctx) })
	if r.Health != nil {
		parts.Go(func() {
			r.serveAccessory(ctx, "events", func(ctx context.Context) { newHealthEvents(r.Options).run(ctx) })
		})
	}
	if r.Faults != nil {
		faults := newFaultEvents(r.Options)
		parts.Go(func() { r.serveAccessory(ctx, "faults", faults.follow) })
		parts.Go(func() { r.serveAccessory(ctx, "events about faults", faults.send) })
	}
}

// serveAccessory runs a part until ctx ends. After a panic it logs the cause and runs the part
// again: the agent prepares claims without it.
func (r *Reporter) serveAccessory(ctx context.Context, part string, run func(context.Context)) {
	pause := eventsBackoff()
	for panics(ctx, part, run) {
		select {
		case <-r.Clock.After(pause.Step()):
		case <-ctx.Done():
			return
		}
	}
}

// panics runs a part and reports whether it has panicked.
func panics(ctx context.Context, part string, run func(context.Context)) (panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked = true
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", cause), "A part has failed, starting it again", "part", part, "stack", string(debug.Stack()))
		}
	}()
	run(ctx)
	return false
}

// Released forgets a claim that holds no devices any more.
func (r *Reporter) Released(uid types.UID) {
	r.shares.release(uid, r.Clock.Now())
	r.status.Forget(uid)
}

// setStatus queues a write of the claim's status.devices unless it is up to date.
func (r *Reporter) setStatus(object *resourceapi.ResourceClaim, status *claimStatus) {
	if !status.written(object, r.DriverName) {
		r.status.Set(status)
	}
}
