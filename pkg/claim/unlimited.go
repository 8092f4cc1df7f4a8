// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// LimitCheck is the result of a check of the memory limits on one device.
type LimitCheck struct {
	Device kind.Name
	// Claims whose containers have a memory limit on the device, in ascending order.
	Claims []types.UID
	// Unlimited are the containers of these claims that compute without their limit,
	// ordered by PID. A container without any process on the GPU does not count.
	Unlimited []Unlimited
	// Err is the reason why there may be more of them, or nil.
	Err error
}

// Unlimited is a container that computes on a device without the memory limit of its claims.
type Unlimited struct {
	// Claims of its pod that have a limit on the device.
	Claims []types.UID
	// PID of one of its processes.
	PID int
}

// CheckLimits lists the containers that compute without the memory limit of their claim.
// Their runtime has not run the hook, or the driver has lost the limit. It returns a check for
// each device with limited containers, ordered by device.
//
// The limits of a pod are not checked if it also has a device of that GPU without a limit,
// or monitors all GPUs. The log names the containers.
func (m *Manager) CheckLimits(ctx context.Context) ([]LimitCheck, error) {
	limited, err := m.LimitedDevices(ctx)
	if err != nil || len(limited) == 0 {
		return nil, err
	}
	devices := map[kind.Name]*LimitCheck{}
	var names []kind.Name
	for _, l := range limited {
		if devices[l.Device] == nil {
			devices[l.Device] = &LimitCheck{Device: l.Device}
			names = append(names, l.Device)
		}
		devices[l.Device].Claims = append(devices[l.Device].Claims, l.Claim.UID)
	}
	slices.SortFunc(names, kind.Compare)
	find := m.unlimitedOn(ctx, limited, names)
	all := make([]LimitCheck, len(names))
	for i, name := range names {
		check := devices[name]
		slices.Sort(check.Claims)
		check.Claims = slices.Compact(check.Claims)
		check.Unlimited, check.Err = find(name)
		all[i] = *check
	}
	return all, nil
}

// unlimitedOn lists the processes on the GPUs of the devices. The returned function finds
// the containers without a limit on one of the devices.
func (m *Manager) unlimitedOn(ctx context.Context, limited []LimitedDevice, names []kind.Name) func(kind.Name) ([]Unlimited, error) {
	if !m.SeesPods() || m.options.Occupancy.Admitted == nil {
		err := fmt.Errorf("%w: the agent does not see the processes of pods", gpu.ErrNotSupported)
		return func(kind.Name) ([]Unlimited, error) { return nil, err }
	}
	users := m.users(ctx, gpusOfNames(names), false)
	// Read after the processes: containers are admitted before they have any.
	holders, err := m.journal.Holders(ctx)
	c := limitChecker{Manager: m, limited: limited, holders: holders, consumers: sync.OnceValues(func() (map[types.UID][]types.UID, error) {
		return m.options.Occupancy.consumers(refsOf(holders))
	})}
	return func(name kind.Name) ([]Unlimited, error) {
		l := users[name.Address]
		onDevice, deviceErr := m.usersOfDevice(ctx, name, l.users)
		if err := errors.Join(err, l.err, deviceErr); err != nil {
			return nil, err
		}
		return c.find(ctx, name, onDevice)
	}
}

// limitChecker has the facts for a check of limits.
type limitChecker struct {
	*Manager
	limited   []LimitedDevice
	holders   []journal.Holder
	consumers func() (map[types.UID][]types.UID, error)
}

// find returns the containers without a limit out of the users of a device. It also
// returns the others if one of them cannot be checked.
func (c limitChecker) find(ctx context.Context, name kind.Name, users []user) ([]Unlimited, error) {
	admitted, err := c.admitted(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	var found []Unlimited
	var errs []error
	seen := map[[2]string]bool{}
	for _, u := range users {
		container := [2]string{u.PodUID, u.ContainerID}
		if u.unknown == nil && (u.PodUID == "" || slices.Contains(admitted, u.ContainerID) || seen[container]) {
			continue
		}
		claims, err := c.limiting(name, u)
		if err = errors.Join(u.unknown, err); err != nil {
			errs = append(errs, err)
			continue
		}
		// The files of a container that has ended may be gone.
		if len(claims) == 0 || !c.lives(u) {
			continue
		}
		seen[container] = true
		klog.FromContext(ctx).Info("A container computes without its memory limit", "device", name, "claimUIDs", claims,
			"pid", u.PID, "command", u.Command, "podUID", u.PodUID, "containerID", u.ContainerID)
		found = append(found, Unlimited{Claims: claims, PID: u.PID})
	}
	slices.SortFunc(found, func(a, b Unlimited) int { return cmp.Compare(a.PID, b.PID) })
	return found, errors.Join(errs...)
}

// admitted returns the IDs of the containers that have a limit on the GPU: it is the same
// for all of their devices on it.
func (c limitChecker) admitted(ctx context.Context, address gpu.PCIAddress) ([]string, error) {
	var all []string
	for _, l := range c.limited {
		if l.Device.Address != address {
			continue
		}
		containers, err := c.options.Occupancy.Admitted(ctx, l.ID)
		if err != nil && !errors.Is(err, gpu.ErrNotFound) { // unprepared meanwhile
			return nil, err
		}
		all = append(all, containers...)
	}
	return all, nil
}

// limiting returns the claims that limit the containers of the process' pod on the device.
// It returns none if the pod may also use the GPU without a limit.
func (c limitChecker) limiting(name kind.Name, u user) ([]types.UID, error) {
	consumers, err := c.consumers()
	if err != nil {
		return nil, err
	}
	var claims []types.UID
	for _, h := range c.holders {
		pod := types.UID(u.PodUID)
		if !slices.Contains(h.Pods, pod) && !slices.Contains(consumers[h.Claim.UID], pod) {
			continue
		}
		for _, other := range h.Names() {
			limited := slices.ContainsFunc(c.limited, func(l LimitedDevice) bool { return l.Claim.UID == h.Claim.UID && l.Device == other })
			switch {
			case !other.OnGPU(), other.Address == name.Address && !limited:
				return nil, nil
			case other == name && !slices.Contains(claims, h.Claim.UID):
				claims = append(claims, h.Claim.UID)
			}
		}
	}
	slices.Sort(claims)
	return claims, nil
}

// lives reports whether the process has not ended.
func (c limitChecker) lives(u user) bool {
	now, err := c.options.Occupancy.Task(u.PID)
	return err == nil && now.Started == u.Started
}
