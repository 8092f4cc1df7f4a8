// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// ForeignProcess is a process of a pod on a device of claims that are not the pod's.
type ForeignProcess struct {
	Device kind.Name
	// Claims that hold the device.
	Claims []types.UID
	PID    int
	// MemoryBytes is 0 if the driver does not report it.
	MemoryBytes uint64
}

// ForeignProcesses lists the foreign processes on the devices of the claims in held, ordered by device.
// The caller has just compared these with the API server, so their pods are known. On a
// device with any other claim, or whose GPU does not list its processes, foreign processes may be
// unknown and are left out. checked are the devices on which all foreign processes are known, in
// order. The log names the pods, which are other tenants'. The pods of a claim that
// monitors all GPUs are left out.
func (m *Manager) ForeignProcesses(ctx context.Context, held []Claim) (foreign []ForeignProcess, checked []kind.Name, err error) {
	if m.options.Occupancy == nil {
		return nil, nil, nil
	}
	before, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, nil, err
	}
	byDevice := m.usersOfHeld(ctx, before)
	// A claim may come or go while the GPUs are read.
	after, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, nil, err
	}
	holders := slices.Concat(before, after)
	for name, users := range byDevice {
		// Without the processes of pods, all processes seem to have ended.
		known := m.SeesPods()
		for _, u := range users {
			claims := u.holders(holders, byDevice)
			switch {
			case u.unknown != nil:
				known = false
				continue
			case u.PodUID == "" || u.isOf(holders, claims):
				continue
			case !areCompared(claims, held):
				known = false
				continue
			}
			if consumes, err := m.consumes(u, holders, claims); consumes || err != nil {
				if err != nil {
					klog.FromContext(ctx).V(2).Info("Cannot list the containers with devices of claims", "err", err)
				}
				known = known && err == nil
				continue
			}
			klog.FromContext(ctx).Info("A process of a pod without a claim is on a held device", "device", name,
				"pid", u.PID, "command", u.Command, "podUID", u.PodUID, "containerID", u.ContainerID)
			foreign = append(foreign, ForeignProcess{Device: name, Claims: claims, PID: u.PID, MemoryBytes: u.MemoryBytes})
		}
		if known {
			checked = append(checked, name)
		}
	}
	slices.SortFunc(foreign, func(a, b ForeignProcess) int {
		return cmp.Or(kind.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	slices.SortFunc(checked, kind.Compare)
	return foreign, checked, nil
}

// usersOfHeld returns the users of each device that a claim holds. It leaves out devices of
// which they cannot be listed.
func (m *Manager) usersOfHeld(ctx context.Context, holders []journal.Holder) map[kind.Name][]user {
	var names []kind.Name
	for _, h := range holders {
		names = append(names, h.Names()...)
	}
	users := m.users(ctx, gpusOfNames(names), false)
	byDevice := map[kind.Name][]user{}
	for _, name := range names {
		if _, known := byDevice[name]; known || !name.OnGPU() {
			continue
		}
		l := users[name.Address]
		onDevice, err := m.usersOfDevice(ctx, name, l.users)
		if err := errors.Join(l.err, err); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot look for foreign processes on a device", "device", name, "err", err)
			continue
		}
		byDevice[name] = onDevice
	}
	return byDevice
}

// holders returns the claims that hold a device that the process uses. A device that is
// not in byDevice may be one.
func (u user) holders(all []journal.Holder, byDevice map[kind.Name][]user) []types.UID {
	var claims []types.UID
	for _, h := range all {
		uses := func(name kind.Name) bool {
			users, known := byDevice[name]
			return !known && name.OnGPU() || slices.ContainsFunc(users, func(other user) bool { return other.PID == u.PID })
		}
		if slices.ContainsFunc(h.Names(), uses) {
			claims = append(claims, h.Claim.UID)
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims)
}

// isOf reports whether the pod of the process is one of these claims', or monitors all GPUs.
func (u user) isOf(all []journal.Holder, claims []types.UID) bool {
	return slices.ContainsFunc(all, func(h journal.Holder) bool {
		monitors := slices.ContainsFunc(h.Names(), func(name kind.Name) bool { return !name.OnGPU() })
		return (monitors || slices.Contains(claims, h.Claim.UID)) && slices.Contains(h.Pods, types.UID(u.PodUID))
	})
}

// consumes reports whether the pod of the process has a device of one of these claims. The
// pods of a PodGroup are in no record.
func (m *Manager) consumes(u user, all []journal.Holder, claims []types.UID) (bool, error) {
	var refs []Ref
	for _, h := range all {
		if slices.Contains(claims, h.Claim.UID) && !slices.Contains(refs, h.Claim) {
			refs = append(refs, h.Claim)
		}
	}
	pods, err := m.consumersOf(refs...)()
	return slices.Contains(pods, types.UID(u.PodUID)), err
}

// areCompared reports whether the pods of all claims are known.
func areCompared(claims []types.UID, held []Claim) bool {
	return !slices.ContainsFunc(claims, func(claim types.UID) bool {
		return !slices.ContainsFunc(held, func(h Claim) bool { return h.UID == claim && h.Phase == Prepared })
	})
}
