// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// startMPS runs an MPS daemon for the clients that a claim brings. Shares of one
// device have their daemon in common: it is started with the first and stopped with
// the last. Its ceilings follow from the records of all of them; see daemonFor.
type startMPS struct {
	mps ports.MPS // nil if this agent knows no supervisor
}

var (
	_ Noter    = startMPS{}
	_ Injector = startMPS{}
	_ Witness  = startMPS{}
	_ Sweeper  = startMPS{}
)

// stopPatience is how long a daemon without clients may take to stop: a part of the
// time to undo, so that the steps before it have some too.
const stopPatience = 2 * time.Second

func (startMPS) Name() string { return journal.StepStartMPS }

func (startMPS) GPUWide() bool { return false }

func (startMPS) Needed(p plan.Plan) []kind.Name {
	var daemons []kind.Name
	for _, d := range p.Devices {
		if d.MPS != nil {
			daemons = append(daemons, d.MPS.Daemon)
		}
	}
	return daemons
}

func (s startMPS) Note(context.Context, Work, journal.Entry) (json.RawMessage, error) {
	return nil, s.checkSupervisor()
}

func (s startMPS) Do(ctx context.Context, w Work, e journal.Entry) (json.RawMessage, error) {
	others, err := w.Others.List(ctx)
	if err != nil {
		return nil, err
	}
	daemon, err := daemonFor(e.Device, w.Record, others)
	if err != nil {
		return nil, err
	}
	if isMixed(daemon) {
		return nil, fmt.Errorf("daemon %s: %w: some shares of the device were prepared with an MPS namespace, and others without: end the pods of either", e.Device, gpu.ErrInUse)
	}
	if err := s.keepCeilings(ctx, e.Device, &daemon, others); err != nil {
		return nil, err
	}
	dirs, err := s.mps.EnsureMPS(ctx, daemon)
	if errors.Is(err, gpu.ErrInUse) {
		dirs, err = s.replace(ctx, e.Device, daemon, others, err)
	}
	if err != nil {
		return nil, fmt.Errorf("daemon %s: %w", e.Device, err)
	}
	return journal.Encode(journal.Daemon(dirs))
}

// replace stops a daemon that runs for other devices, and starts the wanted one in its
// place: after a reset of the GPU a MIG device has another UUID, and an unfinished stop
// can leave a daemon too. No claim uses those other devices. If other claims use the
// daemon, replace lists the daemons again to be sure.
func (s startMPS) replace(ctx context.Context, name kind.Name, daemon gpu.MPSDaemon, others []journal.Holder, cause error) (gpu.MPSDirs, error) {
	if slices.ContainsFunc(others, func(h journal.Holder) bool { return h.Began(s.Name(), name) }) {
		all, err := s.mps.MPSDaemons(ctx)
		if err != nil {
			return gpu.MPSDirs{}, errors.Join(cause, err)
		}
		if !slices.ContainsFunc(all, func(status gpu.MPSStatus) bool {
			return status.Daemon.Name == daemon.Name && !slices.Equal(status.Daemon.Devices, daemon.Devices)
		}) {
			return gpu.MPSDirs{}, cause
		}
	}
	if err := s.mps.StopMPS(ctx, daemon.Name); err != nil {
		return gpu.MPSDirs{}, err
	}
	return s.mps.EnsureMPS(ctx, daemon)
}

func (s startMPS) Undo(ctx context.Context, w Work, e journal.Entry) error {
	if e.State == journal.Lost {
		return s.undoLost(ctx, w, e)
	}
	if e.State == journal.Started {
		return s.undoStarted(ctx, w, e)
	}
	if err := s.checkSupervisor(); err != nil {
		return err
	}
	return s.release(ctx, e.Device, w.Record, w.Others)
}

// undoStarted releases a daemon that no container has been a client of.
func (s startMPS) undoStarted(ctx context.Context, w Work, e journal.Entry) error {
	if err := s.checkSupervisor(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	err := s.release(limited, e.Device, w.Record, w.Others)
	if errors.Is(err, gpu.ErrNotReady) || errors.Is(err, gpu.ErrTimeout) {
		// If the daemon was started after all, a sweep stops it or the next claim
		// uses it.
		klog.FromContext(ctx).Info("Cannot stop an unused MPS daemon, leaving it to a sweep", "step", s.Name(), "device", e.Device, "err", err)
		return nil
	}
	return err
}

// undoLost releases the daemon that a claim with a lost record may have used. There
// need not be one at all, so it succeeds if the supervisor is away.
func (s startMPS) undoLost(ctx context.Context, w Work, e journal.Entry) error {
	if s.mps == nil {
		return nil
	}
	err := s.release(ctx, e.Device, nil, w.Others)
	if errors.Is(err, gpu.ErrNotReady) {
		klog.FromContext(ctx).Info("Cannot stop an MPS daemon, leaving it to a sweep", "step", s.Name(), "device", e.Device, "err", err)
		return nil
	}
	return err
}

// release stops the daemon of a claim if it has no other user. Otherwise it removes the
// claim's namespaces, and lowers the ceilings that only this claim needed. own is nil
// if the record of the claim is lost.
func (s startMPS) release(ctx context.Context, daemon kind.Name, own *journal.Record, all *journal.Others) error {
	others, err := all.List(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(slices.Clone(others), func(h journal.Holder) bool { return !h.Began(s.Name(), daemon) })
	if len(others) == 0 {
		if err := s.mps.StopMPS(ctx, daemon.String()); err != nil {
			return fmt.Errorf("daemon %s: %w", daemon, err)
		}
		return nil
	}
	without, err := daemonFor(daemon, nil, others)
	if err != nil || without.Devices == nil || slices.Contains(without.Devices, "") || isMixed(without) {
		return err
	}
	if own != nil {
		with, err := daemonFor(daemon, own, others)
		if err != nil || slices.Equal(with.MemoryLimits, without.MemoryLimits) && with.ThreadPercentage == without.ThreadPercentage && slices.Equal(with.Namespaces, without.Namespaces) {
			return err
		}
	}
	err = s.keepCeilings(ctx, daemon, &without, others)
	if err == nil {
		_, err = s.mps.EnsureMPS(ctx, without)
	}
	if err != nil {
		// The limits of the other claims hold as before, so this does not keep a pod
		// from going away. Verifying those claims tries again.
		klog.FromContext(ctx).Info("The ceilings of an MPS daemon stay as they are for now", "step", s.Name(), "device", daemon, "err", err)
	}
	return nil
}

// Inject makes containers clients of the device's daemon, with its limits. They get its
// folder, or only the one of their namespace, at the path of the host: NVIDIA requires
// daemon and clients to use the same path. The CDI spec has the client, so that its
// namespace is known if the record is lost.
func (startMPS) Inject(_ context.Context, r *journal.Record, d plan.Device, injection *gpu.Injection) error {
	if d.MPS == nil {
		return nil
	}
	daemon, err := r.Daemon(d.MPS.Daemon)
	if err != nil {
		return err
	}
	pipe := daemon.Pipe
	if d.MPS.Namespace != "" {
		pipe = filepath.Join(pipe, d.MPS.Namespace)
		client, err := json.Marshal(d.MPS)
		if err != nil {
			return err
		}
		if injection.Annotations == nil {
			injection.Annotations = map[string]string{}
		}
		injection.Annotations[journal.AnnotationMPS] = string(client)
	}
	injection.Env = append(injection.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	if d.MPS.ThreadPercentage > 0 {
		injection.Env = append(injection.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", d.MPS.ThreadPercentage))
	}
	clients := []plan.Device{d}
	if d.Share == nil {
		clients = clientsOf(r, d.MPS.Daemon)
	}
	if limits := memoryLimits(d, clients); limits != "" {
		injection.Env = append(injection.Env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+limits)
	}
	injection.Mounts = append(injection.Mounts,
		gpu.Mount{HostPath: pipe, ContainerPath: pipe},
		gpu.Mount{HostPath: daemon.Shm, ContainerPath: "/dev/shm"})
	return nil
}

func (s startMPS) checkSupervisor() error {
	if s.mps == nil {
		return fmt.Errorf("%w: this agent was started without --mps-supervisor and cannot reach the MPS daemons of the claim; start it with the flag until such claims are gone", gpu.ErrNotSupported)
	}
	return nil
}

func (startMPS) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	daemon := d.Name.MPSDaemon()
	return daemon, nil, daemon != kind.Name{}
}

// Leftovers returns all daemons, none while the supervisor is away.
func (s startMPS) Leftovers(ctx context.Context) ([]kind.Name, error) {
	if s.mps == nil {
		return nil, nil
	}
	all, err := s.mps.MPSDaemons(ctx)
	if errors.Is(err, gpu.ErrNotReady) {
		klog.FromContext(ctx).V(2).Info("Cannot list MPS daemons, will retry at the next recovery", "err", err)
		return nil, nil
	}
	var names []kind.Name
	for _, status := range all {
		var name kind.Name
		if bad := name.UnmarshalText([]byte(status.Daemon.Name)); bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		names = append(names, name)
	}
	return names, err
}

// Sweep stops a daemon. Every claim that uses it has the device that it is named after,
// or seats of that GPU, and the caller holds their lock.
func (s startMPS) Sweep(ctx context.Context, daemon kind.Name, others *journal.Others) (bool, error) {
	if unused, err := others.IsLastUser(ctx, s.Name(), daemon); err != nil || !unused {
		return false, err
	}
	if err := s.mps.StopMPS(ctx, daemon.String()); err != nil {
		return false, err
	}
	klog.FromContext(ctx).Info("Stopped an MPS daemon that no claim used", "device", daemon)
	return true, nil
}

// keepCeilings does not lower the ceilings of a daemon while the limits of a user are unknown.
// A claim whose record was lost is such a user.
func (s startMPS) keepCeilings(ctx context.Context, name kind.Name, daemon *gpu.MPSDaemon, others []journal.Holder) error {
	if !slices.ContainsFunc(others, func(h journal.Holder) bool {
		return h.Began(s.Name(), name) && !hasClient(h.Record, name)
	}) {
		return nil
	}
	all, err := s.mps.MPSDaemons(ctx)
	if err != nil {
		return err
	}
	for _, status := range all {
		if status.Daemon.Name == daemon.Name {
			raise(daemon, status.Daemon.ThreadPercentage, status.Daemon.MemoryLimits)
		}
	}
	return nil
}
