// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// The records list the claims that may use a device. Two witnesses know the processes that
// can: the kernel knows which pods have a process, and the hardware lists the computing
// ones. They differ from the records after a forced deletion: the API server and the
// kubelet forget the pod while its processes go on. A container keeps its device nodes
// even if it computes nothing at the moment, so its pod counts, whatever the hardware
// lists.

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

// Occupancy finds the users of the node's GPUs. All fields except Lives, EndStub,
// KubeletPods and Admitted are required.
type Occupancy struct {
	Hardware Hardware
	// Task describes a process. The error wraps [gpu.ErrNotFound] if it has ended.
	Task func(pid int) (gpu.Task, error)
	// Lives reports whether a pod has a process that has not ended. The source misses none
	// of a pod that it knows or has known: after an error the pod may live. pid is one of the
	// processes, for messages, or 0. It is nil if this process does not see pods.
	Lives func(pod types.UID) (pid int, lives bool, err error)
	// EndStub kills a process of a pod if it is the runtime's and waits to start a container. It may be nil.
	EndStub func(ctx context.Context, pid int, pod types.UID)
	// KubeletPods returns the pods that use each claim on the node, by claim UID. The source is
	// the kubelet, which knows them before it starts their containers. It may be nil.
	KubeletPods func() (map[types.UID][]types.UID, error)
	// Admitted returns the IDs of the containers that have a memory limit by a device of a
	// claim. The driver confirms the limit. It may include containers that have ended. device
	// is an ID of [LimitedDevice]. The error wraps [gpu.ErrNotFound] if containers of the device have
	// no limit. It is nil if the limits of containers cannot be read.
	Admitted func(ctx context.Context, device string) (containers []string, err error)
	// Pods reads from the API server the pods that a claim is reserved for. It
	// returns no pods if the claim is gone. It is called while no lock is held.
	Pods func(ctx context.Context, claim Ref) ([]types.UID, error)
	// Consumers returns the pods whose containers show devices of the claims, by claim UID.
	// The source is the kernel, which shows the names of claims. A container can hide its devices, so
	// absence proves nothing. It waits for no other process: it is called while locks are
	// held.
	Consumers func(claims []Ref) (map[types.UID][]types.UID, error)
}

// SeesPods reports whether the manager sees the processes of pods.
func (m *Manager) SeesPods() bool {
	return m.options.Occupancy != nil && m.options.Occupancy.Lives != nil
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

// listing is the users of a GPU, or the error of listing them.
type listing struct {
	users []user
	err   error
}

// users returns the processes on each GPU and reads the GPUs in parallel. It omits
// processes that have ended, the processes of MPS itself, and graphics processes of
// the host: a display server does not compute for a claim. If check is set, a GPU that
// does not answer is an error too.
func (m *Manager) users(ctx context.Context, addresses []gpu.PCIAddress, check bool) map[gpu.PCIAddress]listing {
	all := make([]listing, len(addresses))
	inParallel(len(addresses), len(addresses), func(i int) { all[i].users, all[i].err = m.usersOf(ctx, addresses[i], check) })
	byGPU := make(map[gpu.PCIAddress]listing, len(addresses))
	for i, address := range addresses {
		byGPU[address] = all[i]
	}
	return byGPU
}

func (m *Manager) usersOf(ctx context.Context, address gpu.PCIAddress, check bool) ([]user, error) {
	ctx, cancel := context.WithTimeout(ctx, hardwarePatience)
	defer cancel()
	if check {
		if err := m.options.Occupancy.Hardware.Check(ctx, address); err != nil {
			return nil, err
		}
	}
	processes, err := m.options.Occupancy.Hardware.Processes(ctx, address)
	if err != nil {
		return nil, err
	}
	var users []user
	for _, p := range processes {
		task, err := m.options.Occupancy.Task(p.PID)
		if errors.Is(err, gpu.ErrNotFound) || task.IsMPS() || err == nil && p.Graphics && task.PodUID == "" {
			continue
		}
		users = append(users, user{Process: p, Task: task, unknown: err})
	}
	return users, nil
}

// usersOfDevice returns the users of a device out of the users of its GPU. The users of a MIG
// device are the processes on the GPU instances at its placement. The MIG devices are
// read from the hardware only if there are processes on the GPU.
func (m *Manager) usersOfDevice(ctx context.Context, name kind.Name, users []user) ([]user, error) {
	if !name.IsPartition() || len(users) == 0 {
		return users, nil
	}
	if m.options.Partitioning == nil {
		return nil, nil
	}
	mig, err := m.options.Partitioning.MIG.MIG(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	present := plan.PartitionsAt(mig, name)
	return slices.DeleteFunc(slices.Clone(users), func(u user) bool {
		return u.GPUInstance == nil || !slices.ContainsFunc(present, func(p gpu.Partition) bool { return p.GPUInstanceID == *u.GPUInstance })
	}), nil
}

// checkUnused returns an error if a GPU of a new record does not answer. It returns an
// error that wraps [gpu.ErrInUse] if a process uses one of the devices and belongs
// neither to the claim nor to another claim that shares the device.
//
// More pods may use a prepared claim later without any call to the agent. So if an
// unknown pod uses a device that other claims share, and their pods have not been read
// from the API server yet, the error is an unknownPod.
func (m *Manager) checkUnused(ctx context.Context, j *job, fromAPI podsOfClaims) error {
	if m.options.Occupancy == nil {
		return nil
	}
	users := m.users(ctx, gpusOfNames(j.Names()), true)
	var errs []error
	for address, l := range users {
		if errors.Is(l.err, gpu.ErrNotSupported) {
			klog.FromContext(ctx).V(2).Info("The driver cannot list the processes on a GPU", "device", address.DeviceName(), "err", l.err)
			continue
		}
		errs = append(errs, l.err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, d := range j.Devices {
		onDevice, err := m.usersOfDevice(ctx, d.Name, users[d.Name.Address].users)
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
		if err := m.checkForeign(j, d, onDevice, others, fromAPI); err != nil {
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

func (m *Manager) checkForeign(j *job, d plan.Device, onDevice []user, others []journal.Holder, fromAPI podsOfClaims) error {
	sharing := slices.DeleteFunc(slices.Clone(others), func(h journal.Holder) bool {
		return !slices.ContainsFunc(h.Devices, func(o plan.Device) bool { return o.Name == d.Name })
	})
	consumers := m.consumersOf(append(refsOf(sharing), j.Claim)...)
	for _, u := range onDevice {
		belongs := func(pods []types.UID) bool { return slices.Contains(pods, types.UID(u.PodUID)) }
		if u.PodUID != "" && (belongs(j.Pods) || slices.ContainsFunc(sharing, func(h journal.Holder) bool { return belongs(h.Pods) })) {
			continue
		}
		pods, err := consumers()
		if u.PodUID != "" && belongs(pods) {
			continue
		}
		u.unknown = errors.Join(u.unknown, err)
		var unanswered error
		if u.PodUID != "" && len(sharing) > 0 {
			if fromAPI == nil {
				return unknownPod{sharing: refsOf(sharing)}
			}
			if slices.ContainsFunc(sharing, func(h journal.Holder) bool { return belongs(fromAPI[h.Claim.UID].pods) }) {
				continue
			}
			for _, h := range sharing {
				unanswered = errors.Join(unanswered, fromAPI[h.Claim.UID].err)
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
		return plan.Refuse(fmt.Errorf("%w: %s still uses it and belongs to no claim that has it; see %s", gpu.ErrInUse, u.Describe(u.PID), gpu.Page("docs/admin/operate.md#after-a-forced-deletion")), details...)
	}
	return nil
}

// consumersOf returns a function that reads the pods on the node with devices of one of the
// claims. It reads them once, when it is called first: only for a process of a pod that no
// record has.
func (m *Manager) consumersOf(claims ...Ref) func() ([]types.UID, error) {
	return sync.OnceValues(func() ([]types.UID, error) {
		consumers, err := m.options.Occupancy.consumers(claims)
		return slices.Concat(slices.Collect(maps.Values(consumers))...), err
	})
}

// consumers returns the pods of the claims by claim UID. The kernel shows only the names of
// claims, so it is read if the kubelet's pods cannot be.
func (o *Occupancy) consumers(claims []Ref) (map[types.UID][]types.UID, error) {
	all, err := o.kubeletPods()
	if err != nil {
		return o.Consumers(claims)
	}
	found := make(map[types.UID][]types.UID, len(claims))
	for _, c := range claims {
		found[c.UID] = all[c.UID]
	}
	return found, nil
}

// kubeletPods is KubeletPods, which may be nil.
func (o *Occupancy) kubeletPods() (map[types.UID][]types.UID, error) {
	if o.KubeletPods == nil {
		return nil, gpu.ErrNotSupported
	}
	return o.KubeletPods()
}

func refsOf(holders []journal.Holder) []Ref {
	refs := make([]Ref, len(holders))
	for i, h := range holders {
		refs[i] = h.Claim
	}
	return refs
}

// unknownPod is the error for a process of an unknown pod on a device. The pod may belong to
// one of the claims that share it.
type unknownPod struct{ sharing []Ref }

func (unknownPod) Error() string {
	return fmt.Sprintf("%v: a process of an unknown pod computes on the device", gpu.ErrInUse)
}

func (unknownPod) Unwrap() error { return gpu.ErrInUse }

// podsOfClaims are the pods of claims as the API server returned them, by claim UID.
type podsOfClaims map[types.UID]podsOfClaim

type podsOfClaim struct {
	pods []types.UID
	err  error
}

// readPods reads from the API server the pods that the claims are reserved for. The caller
// holds no lock.
func (m *Manager) readPods(ctx context.Context, claims []Ref) podsOfClaims {
	ctx, cancel := context.WithTimeout(ctx, hardwarePatience)
	defer cancel()
	var mu sync.Mutex
	all := make(podsOfClaims, len(claims))
	inParallel(len(claims), parallelReads, func(i int) {
		pods, err := m.options.Occupancy.Pods(ctx, claims[i])
		mu.Lock()
		defer mu.Unlock()
		all[claims[i].UID] = podsOfClaim{pods, err}
	})
	return all
}

// parallelReads limits the concurrent requests of one call to the API server.
const parallelReads = 8

// logRefusal logs the details of an error, if it has any.
func logRefusal(ctx context.Context, err error) {
	if r, ok := plan.DetailsOf(err); ok {
		klog.FromContext(ctx).Info("The claim must wait for another", append([]any{"err", err}, r.Details...)...)
	}
}
