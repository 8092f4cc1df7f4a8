// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
)

// WhyUnneeded returns why this node need not hold a claim any longer, or "" if it must.
// held is the claim as [Manager.Held] listed it, and object is the claim as read from
// the API server after that. object is nil if the claim does not exist there.
func (m *Manager) WhyUnneeded(held Claim, object *resourceapi.ResourceClaim) string {
	return held.WhyUnneeded(object, m.options.DriverName, m.options.PoolName)
}

// WhyUnneeded is like [Manager.WhyUnneeded], on a node that publishes the pool of the driver.
func (h Claim) WhyUnneeded(object *resourceapi.ResourceClaim, driver, pool string) string {
	switch {
	case object == nil:
		return "the claim is gone"
	case object.UID != h.UID:
		return "another claim has taken its name"
	case object.Status.Allocation == nil:
		return "the claim is not allocated any more"
	case !h.isAllocatedAs(driver, pool, object.Status.Allocation.Devices.Results):
		return "the claim is allocated other devices"
	}
	return ""
}

// isAllocatedAs reports whether the results of this driver on this node are the held
// devices in order.
func (h Claim) isAllocatedAs(driver, pool string, results []resourceapi.DeviceRequestAllocationResult) bool {
	n := 0
	for _, result := range results {
		if result.Driver != driver || result.Pool != pool {
			continue
		}
		if n == len(h.Devices) || !h.matches(h.Devices[n], result) {
			return false
		}
		n++
	}
	return n == len(h.Devices)
}

// matches reports whether a device of the claim is the device of an allocation result. For
// a claim without a record only the device name and, for a share, the share ID are
// known from the CDI spec.
func (h Claim) matches(d Device, result resourceapi.DeviceRequestAllocationResult) bool {
	if h.Phase == Unrecorded {
		return d.Name.String() == result.Device && (d.ShareID == nil || result.ShareID != nil && *d.ShareID == *result.ShareID)
	}
	return d.Request == result.Request && d.Pool == result.Pool && d.Name.String() == result.Device && plan.IsSameShare(d.ShareID, result.ShareID)
}

// RecordPods records the pods of a claim that this node needs: more pods may use a prepared
// claim without any call to the agent. See [Manager.WhyUnneeded] for held and object. It
// forgets pods for which the claim is no longer reserved, which the kubelet has forgotten,
// and of which no process lives. It does nothing if the record has changed since it was
// listed, or if another call has the lock of the claim.
func (m *Manager) RecordPods(ctx context.Context, held Claim, object *resourceapi.ResourceClaim) error {
	if held.Phase != Prepared || !m.SeesPods() {
		return nil
	}
	pods := PodsOf(object)
	if isSubset(pods, held.Pods) && isSubset(held.Pods, pods) {
		return nil
	}
	listed, err := m.options.Occupancy.kubeletPods()
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read the kubelet's pods of a claim", "err", err)
	}
	ended := map[types.UID]bool{}
	for _, pod := range held.Pods {
		if slices.Contains(pods, pod) || slices.Contains(listed[held.UID], pod) {
			continue
		}
		_, lives, err := m.options.Occupancy.Lives(pod)
		if err != nil {
			return err
		}
		ended[pod] = !lives
	}
	unlock, ok, err := m.locks.tryLock(ctx, claimLockName(held.UID))
	if err != nil || !ok {
		return err
	}
	defer unlock()
	same, err := m.journal.IsUnchanged(held.UID, held.Phase, held.stamp)
	if err != nil || !same {
		return err
	}
	return m.changePods(ctx, held.UID, pods, ended)
}

// RecordConsumers records the pods on the node that have devices of each prepared claim. A
// pod may join a claim without any call to the agent, and its containers can hide its devices
// later. It leaves out claims whose lock another call has.
func (m *Manager) RecordConsumers(ctx context.Context) error {
	if !m.SeesPods() {
		return nil
	}
	holders, err := m.journal.Holders(ctx)
	if err != nil || len(holders) == 0 {
		return err
	}
	consumers, err := m.options.Occupancy.consumers(refsOf(holders))
	errs := []error{err}
	for _, h := range holders {
		if h.Phase == Prepared && !isSubset(consumers[h.Claim.UID], h.Pods) {
			errs = append(errs, m.addPods(ctx, h.Claim.UID, consumers[h.Claim.UID]))
		}
	}
	return errors.Join(errs...)
}

// addPods adds pods to the record of a claim if its lock is free.
func (m *Manager) addPods(ctx context.Context, claim types.UID, pods []types.UID) error {
	unlock, ok, err := m.locks.tryLock(ctx, claimLockName(claim))
	if err != nil || !ok {
		return err
	}
	defer unlock()
	return m.changePods(ctx, claim, pods, nil)
}

// changePods adds pods to the record of a prepared claim and removes pods that have ended.
// The caller holds the lock of the claim.
func (m *Manager) changePods(ctx context.Context, claim types.UID, pods []types.UID, ended map[types.UID]bool) error {
	r, err := m.journal.Load(ctx, claim)
	if err != nil || m.journal.Phase(r) != Prepared {
		return err
	}
	before := r.Pods
	r.Pods = slices.DeleteFunc(slices.Clone(r.Pods), func(pod types.UID) bool { return ended[pod] })
	if r.AddPods(pods); slices.Equal(r.Pods, before) {
		return nil
	}
	return m.journal.Save(r)
}

func isSubset(pods, all []types.UID) bool {
	return !slices.ContainsFunc(pods, func(pod types.UID) bool { return !slices.Contains(all, pod) })
}

// Release unprepares a claim that this node no longer needs, and reports whether it
// did. See [Manager.WhyUnneeded] for held and object.
//
// The object is about the listed claim. So Release takes the lock of the claim and does
// nothing if the record has changed since, or if another call has the lock. The caller
// lists the claims again later. Otherwise Release works like [Manager.Unprepare], with
// two exceptions. It does not wait for processes to end: it returns an error that wraps
// [gpu.ErrInUse] while there are any. And it returns an error if a GPU of the claim does
// not list its processes.
func (m *Manager) Release(ctx context.Context, held Claim, object *resourceapi.ResourceClaim) (released bool, err error) {
	why := m.WhyUnneeded(held, object)
	if why == "" {
		return false, nil
	}
	unlock, ok, err := m.locks.tryLock(ctx, claimLockName(held.UID))
	if err != nil || !ok {
		return false, err
	}
	defer unlock()
	same, err := m.journal.IsUnchanged(held.UID, held.Phase, held.stamp)
	if err != nil {
		return false, err
	}
	if !same {
		klog.FromContext(ctx).V(2).Info("The claim has changed since it was listed, will retry", "why", why)
		return false, nil
	}
	klog.FromContext(ctx).Info("Unpreparing a claim that is not needed here", "why", why)
	var to absent
	if object != nil && object.UID == held.UID {
		to.reserved = PodsOf(object)
	}
	if _, err := m.reach(ctx, held.UID, to); err != nil {
		logRefusal(ctx, err)
		return false, err
	}
	return true, nil
}
