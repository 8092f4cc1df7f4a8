package claim

import (
	"context"
	"errors"
	"io/fs"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Unneeded returns why this node no longer needs to hold a claim, or "" if it
// does. held is the claim as [Manager.Held] listed it before the API server was
// asked, and object is the answer, nil if the API server says that this very
// claim does not exist.
func (m *Manager) Unneeded(held Held, object *resourceapi.ResourceClaim) string {
	switch {
	case object == nil:
		return "the claim is gone"
	case object.UID != held.UID:
		return "another claim has taken its name"
	case object.Status.Allocation == nil:
		return "the claim is not allocated any more"
	case !m.allocatedAs(held, object.Status.Allocation.Devices.Results):
		return "the claim is allocated other devices"
	}
	return ""
}

// allocatedAs reports whether the results of this driver on this node are the
// devices held, in the same order.
func (m *Manager) allocatedAs(held Held, results []resourceapi.DeviceRequestAllocationResult) bool {
	n := 0
	for _, result := range results {
		if result.Driver != m.DriverName || result.Pool != m.PoolName {
			continue
		}
		if n == len(held.Devices) || !held.is(held.Devices[n], result) {
			return false
		}
		n++
	}
	return n == len(held.Devices)
}

// is reports whether a device of the claim is an allocation result. The CDI spec
// of a claim without a record names the device and the share ID of a part only.
func (h Held) is(d Device, result resourceapi.DeviceRequestAllocationResult) bool {
	if h.Phase == Unrecorded {
		return d.Name == result.Device && (d.ShareID == nil || result.ShareID != nil && *d.ShareID == *result.ShareID)
	}
	recorded := allocated{Request: d.Request, Pool: d.Pool, Device: d.Name, ShareID: d.ShareID}
	return recorded.same(allocated{Request: result.Request, Pool: result.Pool, Device: result.Device, ShareID: result.ShareID})
}

// Release unprepares a claim that this node no longer needs (see
// [Manager.Unneeded]), and reports whether it did. held is the claim as
// [Manager.Held] listed it before the API server was asked, and object is the
// answer, nil for a claim that does not exist.
//
// The answer is about the claim as it was listed. So under the lock of the claim
// Release compares that with the record that is there now, and does nothing if
// the record has changed since or another call is working on the claim: the
// next round judges it anew. Otherwise it does what [Manager.Unprepare] does,
// and like that it returns an error that wraps [gpu.ErrInUse] while processes
// still compute on the claim's devices.
func (m *Manager) Release(ctx context.Context, held Held, object *resourceapi.ResourceClaim) (released bool, err error) {
	why := m.Unneeded(held, object)
	if why == "" {
		return false, nil
	}
	unlock, ok, err := m.locks.try(ctx, claimLock(held.UID))
	if err != nil || !ok {
		return false, err
	}
	defer unlock()
	same, err := m.unchanged(held)
	if err != nil {
		return false, err
	}
	if !same {
		klog.FromContext(ctx).V(2).Info("The claim has changed since it was listed, will compare it again", "why", why)
		return false, nil
	}
	klog.FromContext(ctx).Info("Unpreparing a claim that is not needed here", "why", why)
	if _, err := m.reach(ctx, held.UID, toAbsent, wanted{}); err != nil {
		logRefusal(ctx, err)
		return false, err
	}
	return true, nil
}

// unchanged reports whether the record of a claim is the one that was listed.
// The caller holds the lock of the claim.
func (m *Manager) unchanged(held Held) (bool, error) {
	if held.Phase == Unrecorded {
		r, err := m.read(held.UID)
		if errors.Is(err, gpu.ErrCorrupt) || errors.Is(err, gpu.ErrNotSupported) {
			return true, nil
		}
		return r == nil, err
	}
	stamp, err := m.Records.Stamp(string(held.UID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return stamp == held.stamp, err
}
