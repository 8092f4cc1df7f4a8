// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Times of a call. The kubelet gives a call 45 seconds, of which the claim is read
// from the API server first. After a failed prepare it comes back no earlier than
// 90 seconds later: what passes by itself is better waited for within the call. A
// call that is not back in time has its error replaced by the kubelet's own.
const (
	patience   = 40 * time.Second
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// undoPatience is how much longer a call may take to undo what it has begun,
	// with hardware that may not answer.
	undoPatience = 3 * time.Second
	// answerTime is kept for the answer to reach the kubelet.
	answerTime = time.Second
	// exitPatience is how long unprepare waits for processes that are being killed.
	exitPatience = 5 * time.Second
)

// within limits a call so that it ends before the kubelet's deadline, which comes
// with ctx, although undoing what it has begun takes time too. Of a very short
// time it keeps two thirds to try.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(undoPatience+answerTime, left/3))
	}
	return context.WithTimeout(ctx, limit)
}

// Prepare makes the devices of the claim usable and returns those of this
// driver in the order of the allocation; none of ours is an empty success. A
// claim that is prepared is verified, repaired and returned as it was.
//
// What may pass ([gpu.Transient]) is tried again for up to 40 seconds or until
// ctx ends, and undone within 3 more. No error leaves anything behind, unless
// undoing failed too; then it says so, and the claim keeps its devices until
// that succeeds. Errors are written for the events of a pod.
//
// The logger in ctx should name the claim, here and in [Manager.Unprepare].
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	devices, err := m.prepareInTime(ctx, claim)
	logRefusal(ctx, err)
	return devices, err
}

// prepareInTime tries until ctx ends.
func (m *Manager) prepareInTime(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	m.BeforePrepare(ctx)
	var before error
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		devices, err := m.prepareOnce(ctx, claim)
		switch {
		case err == nil:
			return devices, nil
		case ctx.Err() != nil && before != nil:
			// What cut this try short says nothing about what is wrong.
			return nil, fmt.Errorf("%w (time ran out while it was tried again: %w)", before, err)
		case !gpu.Transient(err):
			return nil, err
		}
		before = err
		klog.FromContext(ctx).V(2).Info("Will try again", "after", pause, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// undoTime is how long a call may take to undo what it has begun. ctx is the
// call's.
func undoTime(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return max(time.Until(deadline), 0) + undoPatience
}

// prepareOnce is one try, and a second one at once if the API server has to be
// asked who shares a device.
func (m *Manager) prepareOnce(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	devices, err := m.prepare(ctx, claim, nil)
	var unknown unknownPod
	if errors.As(err, &unknown) {
		return m.prepare(ctx, claim, m.ask(ctx, unknown.of))
	}
	return devices, err
}

func (m *Manager) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, asked answers) ([]Device, error) {
	record, err := m.node().Allocated(claim)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, m.unprepare(ctx, claim.UID)
	}
	want := wanted{Record: record, asked: asked}
	if want.plan, want.refusal = plan.Make(claim, record, m.facts(ctx, claim, record)); want.refusal == nil {
		record.Journal = m.steps.Journal(want.plan)
	}
	unlock, err := m.locks.lock(ctx, claimLock(claim.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := m.reach(ctx, claim.UID, toPrepared, want)
	if err != nil {
		return nil, err
	}
	devices, err := devicesOf(r)
	if err != nil {
		return nil, err
	}
	names, err := r.Names()
	if err != nil {
		return nil, err
	}
	for i := range devices {
		devices[i].Attributes = make(map[string]resourceapi.DeviceAttribute)
		for name, value := range m.Attributes(names[i]) {
			devices[i].Attributes[string(name)] = value
		}
	}
	return devices, nil
}

// node returns what this node offers and can do.
func (m *Manager) node() plan.Node {
	return plan.Node{
		DriverName: m.DriverName, PoolName: m.PoolName, BootID: m.BootID,
		Shares: m.Shares, ContextMemory: m.ContextMemory,
		Partitioning: m.Partitioning != nil, MPS: m.MPS != nil, TimeSlicing: m.TimeSlicing != nil,
	}
}

// facts returns what the plan of a claim follows from.
func (m *Manager) facts(ctx context.Context, claim *resourceapi.ResourceClaim, record *journal.Record) plan.Facts {
	f := plan.Facts{Node: m.node(), GPUs: make(map[gpu.PCIAddress]plan.GPU)}
	for _, address := range onDevicesOf(record).gpus {
		g, err := m.Inventory.GPU(ctx, address)
		f.GPUs[address] = plan.GPU{GPU: g, Err: err}
	}
	if f.MPS && f.AsksForMultiUser(claim) {
		f.MultiUser, f.MultiUserErr = m.MPS.MultiUser(ctx)
	}
	return f
}

// PodsOf returns the UIDs of the pods that a claim is reserved for.
func PodsOf(claim *resourceapi.ResourceClaim) []types.UID { return plan.PodsOf(claim) }

// Unprepare undoes all that was done for the claim. It succeeds if nothing is
// known of the claim. After an error the claim still holds its devices, and the
// call is to be repeated.
//
// While processes compute on the claim's devices, Unprepare undoes nothing: it
// waits up to 5 seconds for them to end, and then returns an error that wraps
// [gpu.ErrInUse].
func (m *Manager) Unprepare(ctx context.Context, claim types.UID) error {
	ctx, cancel := within(ctx)
	defer cancel()
	giveUp := time.After(exitPatience)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := m.unprepare(ctx, claim)
		var still stillComputing
		if !errors.As(err, &still) {
			return err
		}
		select {
		case <-time.After(pause):
			continue
		case <-giveUp:
		case <-ctx.Done():
		}
		logRefusal(ctx, err)
		return err
	}
}

func (m *Manager) unprepare(ctx context.Context, claim types.UID) error {
	unlock, err := m.locks.lock(ctx, claimLock(claim))
	if err != nil {
		return err
	}
	defer unlock()
	_, err = m.reach(ctx, claim, toAbsent, wanted{})
	return err
}
