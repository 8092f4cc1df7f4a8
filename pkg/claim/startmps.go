package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const stepStartMPS = "StartMPS"

// startMPS has an MPS daemon running for the clients that a claim brings. Shares
// of one device have their daemon in common: it is started with the first and
// stopped with the last. What it is to be follows from the records of all of
// them, see daemonFor.
type startMPS struct{ mps MPS }

// mpsResult is the result of startMPS.
type mpsResult struct {
	// Pipe and Shm are folders on the host that clients need.
	Pipe string `json:"pipe"`
	Shm  string `json:"shm"`
}

func (s startMPS) begin(context.Context, job, *entry) error { return s.there() }

func (s startMPS) do(ctx context.Context, j job, e *entry) error {
	others, err := j.others(ctx)
	if err != nil {
		return err
	}
	daemon, err := daemonFor(e.Device, j.record, others)
	if err != nil {
		return err
	}
	if err := s.neverLess(ctx, &daemon, others); err != nil {
		return err
	}
	dirs, err := s.mps.EnsureMPS(ctx, daemon)
	if err != nil {
		return fmt.Errorf("daemon %s: %w", e.Device, err)
	}
	e.Result, err = json.Marshal(mpsResult(dirs))
	return err
}

// undo stops the daemon with its last client's claim, and takes back the
// ceilings that only this claim needed.
func (s startMPS) undo(ctx context.Context, j job, e entry) error {
	if err := s.there(); err != nil {
		return err
	}
	others, err := j.others(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(slices.Clone(others), func(h holder) bool { return !h.began(stepStartMPS, e.Device) })
	if len(others) == 0 {
		err := s.mps.StopMPS(ctx, e.Device)
		if errors.Is(err, gpu.ErrNotReady) && e.State == started {
			// No container has been a client. A daemon that was started all
			// the same is stopped by a recovery, or becomes the next claim's.
			klog.FromContext(ctx).Info("The supervisor of MPS daemons is away and has nothing to stop, as far as is known", "step", stepStartMPS, "device", e.Device, "err", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("daemon %s: %w", e.Device, err)
		}
		return nil
	}
	with, err := daemonFor(e.Device, j.record, others)
	if err != nil {
		return err
	}
	without, err := daemonFor(e.Device, nil, others)
	if err != nil || without.Devices == nil || slices.Contains(without.Devices, "") || slices.Equal(with.MemoryLimits, without.MemoryLimits) && with.ThreadPercentage == without.ThreadPercentage {
		return err
	}
	err = s.neverLess(ctx, &without, others)
	if err == nil {
		_, err = s.mps.EnsureMPS(ctx, without)
	}
	if err != nil {
		// The others' own limits hold as before, so this is no reason to keep a
		// pod from going away. Verifying them tries again.
		klog.FromContext(ctx).Info("The ceilings of an MPS daemon stay as they are for now", "step", stepStartMPS, "device", e.Device, "err", err)
	}
	return nil
}

func (s startMPS) there() error {
	if s.mps == nil {
		return fmt.Errorf("%w: this agent was started without --mps-supervisor and cannot reach the MPS daemons of the claim; start it with the flag until such claims are gone", gpu.ErrNotSupported)
	}
	return nil
}

// neverLess leaves the ceilings of a daemon as high as they are if a claim
// without a record has a share: nobody knows any more how large that is.
func (s startMPS) neverLess(ctx context.Context, daemon *gpu.MPSDaemon, others []holder) error {
	if !slices.ContainsFunc(others, func(h holder) bool { return h.phase == Unrecorded && h.began(stepStartMPS, daemon.Name) }) {
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

// daemonFor gives what a daemon is to be for the claim of a record, which may be
// nil, and for the others that use it. Its ceilings are what the largest client
// has: all that a client gets that drops its environment.
func daemonFor(name string, own *record, others []holder) (gpu.MPSDaemon, error) {
	daemon := gpu.MPSDaemon{Name: name}
	records := []*record{}
	if own != nil {
		records = append(records, own)
	}
	for _, other := range others {
		if other.began(stepStartMPS, name) {
			records = append(records, other.record)
		}
	}
	for _, r := range records {
		for _, d := range r.Devices {
			if d.MPS == nil || d.MPS.Daemon != name {
				continue
			}
			clients := []allocated{d}
			if d.Share == nil {
				clients = r.clientsOf(name)
			}
			devices, limits := make([]string, len(clients)), make([]uint64, len(clients))
			for i, c := range clients {
				uuid, err := r.uuid(c)
				if err != nil {
					return daemon, err
				}
				devices[i], limits[i] = uuid, c.MPS.MemoryLimit
			}
			if daemon.Devices == nil {
				daemon.Devices, daemon.ThreadPercentage, daemon.MemoryLimits = devices, d.MPS.ThreadPercentage, limits
			} else {
				raise(&daemon, d.MPS.ThreadPercentage, limits)
			}
		}
	}
	return daemon, nil
}

// raise gives the daemon the higher ones of its and these ceilings. 0 is none,
// and the highest.
func raise(daemon *gpu.MPSDaemon, threads int, limits []uint64) {
	if threads == 0 || daemon.ThreadPercentage == 0 {
		daemon.ThreadPercentage = 0
	} else {
		daemon.ThreadPercentage = max(daemon.ThreadPercentage, threads)
	}
	for i := range daemon.MemoryLimits {
		if i >= len(limits) || limits[i] == 0 || daemon.MemoryLimits[i] == 0 {
			daemon.MemoryLimits[i] = 0
		} else {
			daemon.MemoryLimits[i] = max(daemon.MemoryLimits[i], limits[i])
		}
	}
}

// clientsOf gives the whole devices that a daemon of the claim's own is for.
func (r *record) clientsOf(daemon string) []allocated {
	var clients []allocated
	for _, d := range r.Devices {
		if d.Share == nil && d.MPS != nil && d.MPS.Daemon == daemon {
			clients = append(clients, d)
		}
	}
	return clients
}

// uuid of a device: of a MIG device the one that was made.
func (r *record) uuid(d allocated) (string, error) {
	name, err := gpu.ParseDeviceName(d.Device)
	if err != nil || name.Kind != gpu.KindMIG {
		return d.UUID, err
	}
	made, err := r.partition(d.Device)
	return made.UUID, err
}

// clientEdits makes containers clients of the device's daemon, with its limits.
func (r *record) clientEdits(d allocated, dirs mpsResult, in *gpu.Injection) {
	pipe := "/run/nvidia-mps/" + d.MPS.Daemon + "/pipe"
	in.Env = append(in.Env, "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	if d.MPS.ThreadPercentage > 0 {
		in.Env = append(in.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", d.MPS.ThreadPercentage))
	}
	clients := []allocated{d}
	if d.Share == nil {
		clients = r.clientsOf(d.MPS.Daemon)
	}
	var limits []string
	for ordinal, c := range clients {
		if c.MPS.MemoryLimit > 0 {
			limits = append(limits, fmt.Sprintf("%d=%dM", ordinal, c.MPS.MemoryLimit/catalog.MemoryStep))
		}
	}
	if len(limits) > 0 {
		in.Env = append(in.Env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+strings.Join(limits, ","))
	}
	in.Mounts = append(in.Mounts,
		gpu.Mount{HostPath: dirs.Pipe, ContainerPath: pipe},
		gpu.Mount{HostPath: dirs.Shm, ContainerPath: "/dev/shm"})
}

// dirs of the daemon that the record has had started.
func (r *record) dirs(daemon string) (mpsResult, error) {
	for _, e := range r.Journal {
		if e.Step == stepStartMPS && e.Device == daemon {
			return e.dirs()
		}
	}
	return mpsResult{}, fmt.Errorf("%w: the MPS daemon %s has not been started", gpu.ErrNotFound, daemon)
}

func (e entry) dirs() (mpsResult, error) {
	var dirs mpsResult
	if err := json.Unmarshal(e.Result, &dirs); err != nil {
		return dirs, fmt.Errorf("result of %s %s: %w: %s", e.Step, e.Device, gpu.ErrCorrupt, e.Result)
	}
	return dirs, nil
}
