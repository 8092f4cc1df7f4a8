// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkEnded returns an error unless the devices of the claim can be made available to
// other claims. The error wraps [gpu.ErrInUse] while
//
//   - a process of one of the claim's pods lives, whether or not it computes;
//   - the hardware lists a process of any pod on a device that the claim has to itself, or one of which cannot be read
//     whether it is of a pod;
//   - the hardware lists a process of one of the claim's pods on a share.
//
// The record of a claim has each pod that was seen with a device of it. All pods that have one
// now count too.
//
// Processes of the host do not count. If a source cannot be read, the claim is kept. The
// exception is hardware that does not answer while the
// kubelet, which has stopped the containers, unprepares the claim: a GPU that
// hangs must not keep its pod Terminating, and no claim can get such a GPU.
func (m *Manager) checkEnded(ctx context.Context, j *job, to absent) error {
	if m.options.Occupancy == nil {
		return nil
	}
	gpus := gpusOfNames(j.Names())
	if len(gpus) == 0 {
		return nil
	}
	if err := m.checkPodsEnded(ctx, j, to); err != nil {
		return err
	}
	users := m.users(ctx, gpus, false)
	for address, l := range users {
		// Processes of pods, or the kubelet's call, already show that the claim has ended.
		if errors.Is(l.err, gpu.ErrNotSupported) && (to.stopped || m.SeesPods()) {
			users[address] = listing{}
		}
	}
	unread, err := m.checkNotComputing(ctx, j, users)
	switch {
	case err != nil:
		return err
	case unread != nil && (!to.stopped || ctx.Err() != nil):
		return fmt.Errorf("the claim keeps its devices, because their processes cannot be listed: %w", unread)
	case unread != nil:
		klog.FromContext(ctx).Info("Cannot list the processes of the claim, unpreparing it", "err", unread)
	}
	return nil
}

// checkPodsEnded returns an error that wraps [gpu.ErrInUse] while a process of one of the claim's
// pods lives. The pause process of a pod counts: the kubelet stops it before it unprepares the
// pod's claims.
func (m *Manager) checkPodsEnded(ctx context.Context, j *job, to absent) error {
	if !m.SeesPods() {
		return nil
	}
	if err := m.checkPods(ctx, j, to, slices.Concat(j.Pods, to.reserved)); err != nil {
		return err
	}
	listed, _ := m.options.Occupancy.kubeletPods()
	if err := m.checkPods(ctx, j, to, listed[j.Claim.UID]); err != nil {
		return err
	}
	// The kubelet may have forgotten a pod that joined the claim and still lives, or all of them: containers may
	// still show the claim.
	consumers, err := m.options.Occupancy.Consumers([]Ref{j.Claim})
	if err != nil {
		return fmt.Errorf("the claim keeps its devices, because the containers with its devices cannot be listed: %w", err)
	}
	others, err := j.Others.List(ctx)
	if err != nil {
		return err
	}
	// The kernel shows names, and a later or earlier claim can have the name of this one. The kubelet knows
	// which of them a pod has, and if it ends this one, a record of another one with the pod suffices.
	ofOther := func(pod types.UID) bool {
		return slices.ContainsFunc(others, func(h journal.Holder) bool {
			return h.Claim.Namespace == j.Claim.Namespace && h.Claim.Name == j.Claim.Name &&
				(slices.Contains(listed[h.Claim.UID], pod) || to.stopped && slices.Contains(h.Pods, pod))
		})
	}
	return m.checkPods(ctx, j, to, slices.DeleteFunc(slices.Clone(consumers[j.Claim.UID]), ofOther))
}

// checkPods returns an error unless all of the pods have ended. It wraps [gpu.ErrInUse] if one
// lives. If the kubelet has stopped them, it ends a process that has not started its container.
func (m *Manager) checkPods(ctx context.Context, j *job, to absent, pods []types.UID) error {
	for _, pod := range pods {
		pid, lives, err := m.options.Occupancy.Lives(pod)
		if err != nil {
			return fmt.Errorf("the claim keeps its devices, because the processes of its pods cannot be listed: %w", err)
		}
		if lives {
			process := "a process"
			if pid != 0 {
				process = fmt.Sprintf("process %d", pid)
				if to.stopped && m.options.Occupancy.EndStub != nil {
					// A runtime that restarts forgets the process, and the kubelet kills what is left in the cgroup
					// of a pod only after it has unprepared the pod's claims.
					m.options.Occupancy.EndStub(ctx, pid, pod)
				}
			}
			return plan.Refuse(
				fmt.Errorf("devices %s: %w: %s of the claim's pod still lives, so the claim keeps them; see %s", j.Names(), gpu.ErrInUse, process, gpu.Page("docs/admin/operate.md#after-a-forced-deletion")),
				"pid", pid, "podUID", pod)
		}
	}
	return nil
}

// checkNotComputing returns an error if the hardware lists a process on a device of the claim.
// It wraps [gpu.ErrInUse]. unread is the reason why the processes of some device cannot be
// listed.
func (m *Manager) checkNotComputing(ctx context.Context, j *job, users map[gpu.PCIAddress]listing) (unread, err error) {
	var unreadable []error
	consumers := m.consumersOf(j.Claim)
	for _, d := range j.Devices {
		l := users[d.Name.Address]
		inPods := slices.DeleteFunc(slices.Clone(l.users), func(u user) bool { return u.PodUID == "" && u.unknown == nil })
		onDevice, err := m.usersOfDevice(ctx, d.Name, inPods)
		unreadable = append(unreadable, l.err, err)
		for _, u := range onDevice {
			if u.unknown != nil {
				return nil, fmt.Errorf("device %s: %w: whether process %d on it is one of a pod cannot be read, so the claim keeps it: %w", d.Name, gpu.ErrInUse, u.PID, u.unknown)
			}
			if d.IsShared() && !slices.Contains(j.Pods, types.UID(u.PodUID)) {
				pods, err := consumers()
				if err != nil {
					return nil, fmt.Errorf("device %s: %w: process %d computes on it, and whether it is the claim's cannot be read: %w; see %s", d.Name, gpu.ErrInUse, u.PID, err, gpu.Page("docs/admin/operate.md#after-a-forced-deletion"))
				}
				if !slices.Contains(pods, types.UID(u.PodUID)) {
					continue
				}
			}
			return nil, plan.Refuse(
				fmt.Errorf("device %s: %w: process %d still computes on it, so the claim keeps it; see %s", d.Name, gpu.ErrInUse, u.PID, gpu.Page("docs/admin/operate.md#after-a-forced-deletion")),
				"pid", u.PID, "command", u.Command, "podUID", u.PodUID, "containerID", u.ContainerID)
		}
	}
	return errors.Join(unreadable...), nil
}
