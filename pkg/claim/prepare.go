package claim

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Times of a prepare call. The kubelet gives a call 45 seconds and, when it has
// failed, comes back no earlier than 90 seconds later: what passes by itself is
// better waited for within the call.
const (
	patience   = 40 * time.Second
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// undoPatience is for undoing what a call has begun, with hardware that
	// may not answer.
	undoPatience = 20 * time.Second
)

// Prepare makes the devices of the claim usable and returns those of this
// driver in the order of the allocation; none of ours is an empty success. A
// claim that is prepared is verified, repaired and returned as it was.
//
// What may pass ([gpu.Transient]) is tried again for up to 40 seconds or until
// ctx ends. No error leaves anything behind, unless undoing failed too; then it
// says so, and the claim keeps its devices until that succeeds. Errors are
// written for the events of a pod.
//
// The logger in ctx should name the claim, here and in [Manager.Unprepare].
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		devices, err := m.prepare(ctx, claim)
		if err == nil || !gpu.Transient(err) {
			return devices, err
		}
		klog.FromContext(ctx).V(2).Info("Will try again", "after", pause, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (m *Manager) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]Device, error) {
	allocation, err := m.allocation(claim)
	if err != nil {
		return nil, err
	}
	if allocation == nil {
		return nil, m.Unprepare(ctx, claim.UID)
	}
	unlock, err := m.locks.lock(ctx, claimLock(claim.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := m.reach(ctx, claim.UID, toPrepared, wanted{allocation, func(ctx context.Context) error {
		return m.plan(ctx, claim, allocation)
	}})
	if err != nil {
		return nil, err
	}
	devices, err := r.held()
	if err != nil {
		return nil, err
	}
	names, err := r.names()
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

// Unprepare undoes all that was done for the claim. A claim of which nothing is
// known is no error. After an error the claim still holds its devices, and the
// call is to be repeated.
func (m *Manager) Unprepare(ctx context.Context, claim types.UID) error {
	unlock, err := m.locks.lock(ctx, claimLock(claim))
	if err != nil {
		return err
	}
	defer unlock()
	_, err = m.reach(ctx, claim, toAbsent, wanted{})
	return err
}
