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

// Times of a call. The kubelet sets a deadline of 45 seconds, which includes reading
// the claim from the API server. After a failed prepare it retries 90 seconds later at
// the earliest, so it is better to wait for a transient failure within the call. If a
// call exceeds the deadline, the kubelet reports its own error instead of the cause.
const (
	patience   = 40 * time.Second
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// undoPatience is the extra time for a failed call to undo its steps. The hardware
	// may not answer.
	undoPatience = 3 * time.Second
	// answerTime is reserved for the response to reach the kubelet.
	answerTime = time.Second
	// exitPatience is the time that Unprepare waits for processes to end.
	exitPatience = 5 * time.Second
)

// withCallTimeout limits a call so that it can undo its steps and respond in time. The
// kubelet's deadline is the deadline of ctx. At least two thirds of the time are left
// for the call itself.
func withCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(undoPatience+answerTime, left/3))
	}
	return context.WithTimeout(ctx, limit)
}

// Prepare prepares the claim's devices of this driver and returns them in the order
// of the allocation. It returns no devices and no error if the claim has none. If the
// claim is prepared already, Prepare verifies and repairs it, and returns the same
// devices.
//
// Prepare retries transient errors ([gpu.Transient]) for up to 40 seconds or until
// ctx ends, and then takes up to 3 more seconds to undo. After an error nothing is
// left of the claim, unless undoing failed too. The error then includes both failures,
// and the claim keeps its devices until a later undo succeeds. Errors are written for
// the events of a pod.
//
// The functions onRetry are called with the error of each attempt that is repeated. They must not
// block. The logger in ctx should name the claim, here and in [Manager.Unprepare].
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim, onRetry ...func(error)) ([]Device, error) {
	return m.prepareInTime(ctx, claim, false, onRetry)
}

// ErrUnprepared is the error of [Manager.PrepareAgain] for a claim that is not prepared.
var ErrUnprepared = fmt.Errorf("%w: the claim is not prepared any more", gpu.ErrNotFound)

// PrepareAgain is [Manager.Prepare] for a claim that is prepared, to repair it. The kubelet may unprepare
// the claim at any time, and does not know the call: a claim that is not prepared stays so.
func (m *Manager) PrepareAgain(ctx context.Context, claim *resourceapi.ResourceClaim, onRetry ...func(error)) ([]Device, error) {
	return m.prepareInTime(ctx, claim, true, onRetry)
}

// prepareInTime retries transient errors until ctx ends.
func (m *Manager) prepareInTime(ctx context.Context, claim *resourceapi.ResourceClaim, again bool, onRetry []func(error)) (_ []Device, err error) {
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	defer func() { logRefusal(ctx, err) }()
	var before error
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		m.options.BeforePrepare(ctx)
		devices, err := m.prepareOnce(ctx, claim, again)
		switch {
		case err == nil:
			return devices, nil
		case ctx.Err() != nil && before != nil:
			// The timeout cut this attempt short; the cause is the error of the
			// attempt before it.
			return nil, fmt.Errorf("%w (time ran out while it was tried again: %w)", before, err)
		case !gpu.Transient(err):
			return nil, err
		}
		before = err
		klog.FromContext(ctx).V(2).Info("Will try again", "after", pause, "err", err)
		for _, notify := range onRetry {
			notify(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// undoTime returns the time that a call may take to undo its steps. ctx is the context
// of the call.
func undoTime(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return max(time.Until(deadline), 0) + undoPatience
}

// prepareOnce makes one attempt to prepare the claim. If the attempt finds an unknown
// pod on a shared device, prepareOnce reads the pods of the sharing claims from the API
// server and makes a second attempt at once.
func (m *Manager) prepareOnce(ctx context.Context, claim *resourceapi.ResourceClaim, again bool) ([]Device, error) {
	devices, err := m.prepare(ctx, claim, again, nil)
	var unknown unknownPod
	if errors.As(err, &unknown) {
		return m.prepare(ctx, claim, again, m.readPods(ctx, unknown.sharing))
	}
	return devices, err
}

func (m *Manager) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, again bool, fromAPI podsOfClaims) ([]Device, error) {
	settings := m.settings()
	allocation, err := settings.AllocationOf(claim)
	if err != nil {
		return nil, err
	}
	allocation.Pods = append(allocation.Pods, m.podsOfGroups(ctx, claim)...)
	var to target = prepared{allocation: allocation, inputs: m.inputs(ctx, settings, allocation), fromAPI: fromAPI, again: again}
	if len(to.devices().Devices) == 0 && !again {
		to = absent{}
	}
	r, err := m.reachLocked(ctx, claim.UID, to)
	if r == nil || err != nil {
		return nil, err
	}
	devices, err := devicesOf(r)
	if err != nil {
		return nil, err
	}
	for i, d := range devices {
		devices[i].Attributes = make(map[string]resourceapi.DeviceAttribute)
		for name, value := range m.options.Attributes(d.Name) {
			devices[i].Attributes[string(name)] = value
		}
	}
	return devices, nil
}

// podsOfGroups returns the pods that a claim does not name, because it is reserved for their PodGroup. The kubelet
// writes them to its file before it calls.
func (m *Manager) podsOfGroups(ctx context.Context, claim *resourceapi.ResourceClaim) []types.UID {
	if !m.SeesPods() || len(PodsOf(claim)) == len(claim.Status.ReservedFor) {
		return nil
	}
	all, err := m.options.Occupancy.kubeletPods()
	if err != nil {
		klog.FromContext(ctx).Info("Cannot read the pods of a claim of a PodGroup, will retry", "err", err)
	}
	return all[claim.UID]
}

// settings returns the settings and abilities of this node.
func (m *Manager) settings() plan.Settings {
	o := m.options
	return plan.Settings{
		DriverName: o.DriverName, PoolName: o.PoolName,
		Shares:       o.Shares(),
		Partitioning: o.Partitioning != nil, MPS: o.MPS != nil, TimeSlicing: o.TimeSlicing != nil,
		ExclusiveCompute: o.ExclusiveCompute != nil && !o.ExclusiveCompute.Off,
	}
}

// inputs returns the inputs of a claim's plan.
func (m *Manager) inputs(ctx context.Context, settings plan.Settings, allocation plan.Allocation) plan.Inputs {
	inputs := plan.Inputs{Settings: settings, GPUs: make(map[gpu.PCIAddress]plan.GPU)}
	for _, address := range allocation.GPUs() {
		g, err := m.options.Inventory.GPU(ctx, address)
		inputs.GPUs[address] = plan.GPU{GPU: g, Err: err}
	}
	if inputs.MPS && allocation.MultiUser {
		inputs.MultiUser, inputs.MultiUserErr = m.options.MPS.MultiUser(ctx)
	}
	return inputs
}

// ReservedPods returns the pods that a claim is reserved for.
func ReservedPods(claim *resourceapi.ResourceClaim) []resourceapi.ResourceClaimConsumerReference {
	return plan.ReservedPods(claim)
}

// PodsOf returns the UIDs of the pods that a claim is reserved for.
func PodsOf(claim *resourceapi.ResourceClaim) []types.UID { return plan.PodsOf(claim) }

// Unprepare undoes all steps of the claim. It succeeds if the claim is unknown. After
// an error the claim still holds its devices, and the caller must retry.
//
// Unprepare undoes nothing while a process of the claim's pods lives, or a process computes
// on the claim's devices. It waits up to 5 seconds for them to end, and for a MIG device that
// another process uses, and then returns an error that wraps [gpu.ErrInUse]. The caller has
// stopped the containers of the claim.
func (m *Manager) Unprepare(ctx context.Context, claim types.UID) error {
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	giveUp := time.After(exitPatience)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		_, err := m.reachLocked(ctx, claim, absent{stopped: true})
		if !errors.Is(err, gpu.ErrInUse) {
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

// reachLocked is reach for callers that do not hold the lock of the claim.
func (m *Manager) reachLocked(ctx context.Context, claim types.UID, to target) (*journal.Record, error) {
	unlock, err := m.locks.lock(ctx, claimLockName(claim))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return m.reach(ctx, claim, to)
}
