// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The records list the claims that may use a device. The hardware lists the processes
// that do use it. The two differ after a forced deletion: the API server and the
// kubelet forget the pod while its processes continue to compute. So the manager lists
// the processes on a GPU twice: before it prepares a device, and before it undoes a
// prepared claim.

// Hardware queries the GPUs. Its methods may be called concurrently for different
// GPUs.
type Hardware interface {
	// Check reports whether the GPU answers. The error wraps [gpu.ErrLost],
	// [gpu.ErrTimeout] or [gpu.ErrNotReady] if it does not.
	Check(ctx context.Context, address gpu.PCIAddress) error
	// Processes lists the processes with a context on the GPU. The error wraps
	// [gpu.ErrNotSupported] if the driver cannot list them.
	Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error)
}

// Occupancy finds the users of the node's GPUs. All fields are required.
type Occupancy struct {
	Hardware Hardware
	// Task describes a process. The error wraps [gpu.ErrNotFound] if it has ended.
	Task func(pid int) (gpu.Task, error)
	// Pods reads from the API server the pods that a claim is reserved for. It
	// returns no pods if the claim is gone. It is called while no lock is held.
	Pods func(ctx context.Context, claim Ref) ([]types.UID, error)
}

// hardwarePatience is the timeout of listing the processes on a GPU.
const hardwarePatience = 5 * time.Second

// user is a process that uses a GPU.
type user struct {
	gpu.Process
	gpu.Task
	// unknown is the error of reading the process from the kernel, or nil.
	unknown error
}

// users returns the processes on each GPU and reads the GPUs in parallel. It omits
// processes that have ended, the processes of MPS itself, and graphics processes of
// the host: a display server does not compute for a claim. If check is set, it
// returns an error if a GPU does not answer.
func (m *Manager) users(ctx context.Context, addresses []gpu.PCIAddress, check bool) (map[gpu.PCIAddress][]user, error) {
	all, errs := make([][]user, len(addresses)), make([]error, len(addresses))
	inParallel(len(addresses), len(addresses), func(i int) { all[i], errs[i] = m.usersOf(ctx, addresses[i], check) })
	byGPU := make(map[gpu.PCIAddress][]user, len(addresses))
	for i, address := range addresses {
		byGPU[address] = all[i]
	}
	return byGPU, errors.Join(errs...)
}

func (m *Manager) usersOf(ctx context.Context, address gpu.PCIAddress, check bool) ([]user, error) {
	ctx, cancel := context.WithTimeout(ctx, hardwarePatience)
	defer cancel()
	if check {
		if err := m.Occupancy.Hardware.Check(ctx, address); err != nil {
			return nil, err
		}
	}
	processes, err := m.Occupancy.Hardware.Processes(ctx, address)
	if errors.Is(err, gpu.ErrNotSupported) {
		klog.FromContext(ctx).V(2).Info("The driver cannot list the processes on a GPU", "device", address.DeviceName(), "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var users []user
	for _, p := range processes {
		task, err := m.Occupancy.Task(p.PID)
		if errors.Is(err, gpu.ErrNotFound) || task.IsMPS() || err == nil && p.Graphics && task.PodUID == "" {
			continue
		}
		users = append(users, user{Process: p, Task: task, unknown: err})
	}
	return users, nil
}

// on returns the users of a device out of the users of its GPU. The users of a MIG
// device are the processes on the GPU instances at its placement. The MIG devices are
// read from the hardware only if there are processes on the GPU.
func (m *Manager) on(ctx context.Context, name kind.Name, users []user) ([]user, error) {
	if !name.IsPartition() || len(users) == 0 {
		return users, nil
	}
	if m.Partitioning == nil {
		return nil, nil
	}
	mig, err := m.Partitioning.MIG.MIG(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	there := plan.PartitionsAt(mig, name)
	return slices.DeleteFunc(slices.Clone(users), func(u user) bool {
		return u.GPUInstance == nil || !slices.ContainsFunc(there, func(p gpu.Partition) bool { return p.GPUInstanceID == *u.GPUInstance })
	}), nil
}

// checkUnused returns an error if a GPU of a new record does not answer. It returns an
// error that wraps [gpu.ErrInUse] if a process uses one of the devices and belongs
// neither to the claim nor to another claim that shares the device.
//
// More pods may use a prepared claim later without any call to the agent. So if an
// unknown pod uses a device that other claims share, and their pods have not been read
// from the API server yet, the error is an unknownPod.
func (m *Manager) checkUnused(ctx context.Context, j *job) error {
	if m.Occupancy == nil {
		return nil
	}
	names, err := j.Names()
	if err != nil {
		return err
	}
	users, err := m.users(ctx, gpusOfNames(names), true)
	if err != nil {
		return err
	}
	for i, d := range j.Devices {
		onDevice, err := m.on(ctx, names[i], users[names[i].Address])
		if err != nil {
			return err
		}
		if len(onDevice) == 0 {
			continue
		}
		others, err := j.Others.List(ctx)
		if err != nil {
			return err
		}
		if err := j.checkStrangers(d, onDevice, others); err != nil {
			return fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	return nil
}

func gpusOfNames(names []kind.Name) []gpu.PCIAddress {
	var addresses []gpu.PCIAddress
	for _, name := range names {
		if name.OnGPU() && !slices.Contains(addresses, name.Address) {
			addresses = append(addresses, name.Address)
		}
	}
	return addresses
}

func (j *job) checkStrangers(d journal.Device, onDevice []user, others []journal.Holder) error {
	sharing := slices.DeleteFunc(slices.Clone(others), func(h journal.Holder) bool {
		return !slices.ContainsFunc(h.Devices, func(o journal.Device) bool { return o.Name == d.Name })
	})
	for _, u := range onDevice {
		belongs := func(pods []types.UID) bool { return slices.Contains(pods, types.UID(u.PodUID)) }
		if u.PodUID != "" && (belongs(j.Pods) || slices.ContainsFunc(sharing, func(h journal.Holder) bool { return belongs(h.Pods) })) {
			continue
		}
		var unanswered error
		if u.PodUID != "" && len(sharing) > 0 {
			if j.asked == nil {
				return unknownPod{of: refsOf(sharing)}
			}
			asked := func(h journal.Holder) bool { return belongs(j.asked[h.Claim.UID].pods) }
			if slices.ContainsFunc(sharing, asked) {
				continue
			}
			for _, h := range sharing {
				unanswered = errors.Join(unanswered, j.asked[h.Claim.UID].err)
			}
		}
		details := []any{"pid", u.PID, "command", u.Command, "podUID", u.PodUID, "containerID", u.ContainerID, "holders", refsOf(sharing)}
		switch {
		case unanswered != nil:
			return plan.Refuse(fmt.Errorf("%w: process %d computes on it, and the API server does not answer whether the process belongs to a claim that shares the device; the query is repeated", gpu.ErrInUse, u.PID),
				append(details, "apiErr", unanswered)...)
		case u.unknown != nil:
			details = append(details, "err", u.unknown)
		}
		return plan.Refuse(fmt.Errorf("%w: process %d still uses it and belongs to no claim that has it; it ends with its pod, or an administrator ends it on the node: kill -9 %d, and a reset of the GPU if that does not help", gpu.ErrInUse, u.PID, u.PID), details...)
	}
	return nil
}

func refsOf(holders []journal.Holder) []Ref {
	refs := make([]Ref, len(holders))
	for i, h := range holders {
		refs[i] = h.Claim
	}
	return refs
}

// unknownPod is the error for a process of an unknown pod on a device. It lists the
// claims that the pod may belong to.
type unknownPod struct{ of []Ref }

func (unknownPod) Error() string {
	return fmt.Sprintf("%v: a process of an unknown pod computes on the device", gpu.ErrInUse)
}

func (unknownPod) Unwrap() error { return gpu.ErrInUse }

// answers are the pods of claims as the API server returned them, by claim UID.
type answers map[types.UID]answer

type answer struct {
	pods []types.UID
	err  error
}

// ask reads from the API server the pods that the claims are reserved for. The caller
// holds no lock.
func (m *Manager) ask(ctx context.Context, claims []Ref) answers {
	ctx, cancel := context.WithTimeout(ctx, hardwarePatience)
	defer cancel()
	var mu sync.Mutex
	all := make(answers, len(claims))
	inParallel(len(claims), parallelReads, func(i int) {
		pods, err := m.Occupancy.Pods(ctx, claims[i])
		mu.Lock()
		defer mu.Unlock()
		all[claims[i].UID] = answer{pods, err}
	})
	return all
}

// parallelReads limits the concurrent requests of one call to the API server.
const parallelReads = 8

// checkEnded returns a stillComputing error if a process still uses a device that
// undoing the claim would make available to other claims:
//
//   - a process of any pod, if the claim has the device to itself;
//   - a process of a pod that the claim was prepared for, if the claim has a share.
//
// Processes of the host do not block the undo. A GPU that does not answer does not
// block it either: its processes are unknown, and no claim can get such a GPU.
func (m *Manager) checkEnded(ctx context.Context, j *job) error {
	if m.Occupancy == nil || len(j.Devices) == 0 {
		return nil
	}
	names, err := j.Names()
	if err != nil {
		return err
	}
	users, err := m.users(ctx, gpusOfNames(names), false)
	if ctx.Err() != nil && err != nil {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot list the processes of the claim, unpreparing it", "err", err)
	}
	for i, d := range j.Devices {
		inPods := slices.DeleteFunc(slices.Clone(users[names[i].Address]), func(u user) bool { return u.PodUID == "" })
		onDevice, err := m.on(ctx, names[i], inPods)
		if err != nil {
			klog.FromContext(ctx).Info("Cannot read MIG devices of a GPU, unpreparing the claim", "device", d.Name, "err", err)
		}
		for _, u := range onDevice {
			if d.IsShared(names[i]) && !slices.Contains(j.Pods, types.UID(u.PodUID)) {
				continue
			}
			return stillComputing{plan.Refuse(
				fmt.Errorf("device %s: %w: process %d still computes on it, so the claim keeps it; the process ends with its container, or an administrator ends it on the node: kill -9 %d, and a reset of the GPU if that does not help", d.Name, gpu.ErrInUse, u.PID, u.PID),
				"pid", u.PID, "command", u.Command, "podUID", u.PodUID, "containerID", u.ContainerID)}
		}
	}
	return nil
}

// stillComputing is the error for a process of a claim that has not ended yet.
type stillComputing struct{ error }

func (s stillComputing) Unwrap() error { return s.error }

// logRefusal logs the details of an error, if it has any.
func logRefusal(ctx context.Context, err error) {
	if r, ok := plan.DetailsOf(err); ok {
		klog.FromContext(ctx).Info("The claim must wait for another", append([]any{"err", err}, r.Details...)...)
	}
}
