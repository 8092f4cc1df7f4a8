package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

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
	if errors.Is(err, gpu.ErrInUse) {
		dirs, err = s.move(ctx, daemon, others, err)
	}
	if err != nil {
		return fmt.Errorf("daemon %s: %w", e.Device, err)
	}
	e.Result, err = json.Marshal(mpsResult(dirs))
	return err
}

// move stops a daemon of other devices, and starts the one that is wanted in its
// place: after a reset of the GPU a MIG device is another one, and so is what an
// unfinished stop has left. No claim uses those other devices. Beside other
// claims that is looked at once more.
func (s startMPS) move(ctx context.Context, daemon gpu.MPSDaemon, others []holder, cause error) (gpu.MPSDirs, error) {
	if slices.ContainsFunc(others, func(h holder) bool { return h.began(stepStartMPS, daemon.Name) }) {
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

func (s startMPS) undo(ctx context.Context, j job, e entry) error {
	if err := s.there(); err != nil {
		return err
	}
	if e.State != started {
		return s.release(ctx, e.Device, j.record, j.around)
	}
	limited, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	err := s.release(limited, e.Device, j.record, j.around)
	if errors.Is(err, gpu.ErrNotReady) || errors.Is(err, gpu.ErrTimeout) {
		// No container has been a client. A daemon that was started all the
		// same is stopped by a recovery, or becomes the next claim's.
		klog.FromContext(ctx).Info("The supervisor of MPS daemons does not answer and has nothing to stop, as far as is known", "step", stepStartMPS, "device", e.Device, "err", err)
		return nil
	}
	return err
}

// release stops the daemon that a claim has used with the last of its claims,
// and takes back the ceilings that only this one needed. Its record is nil if it
// is lost.
func (s startMPS) release(ctx context.Context, daemon string, own *record, around *around) error {
	others, err := around.others(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(slices.Clone(others), func(h holder) bool { return !h.began(stepStartMPS, daemon) })
	if len(others) == 0 {
		if err := s.mps.StopMPS(ctx, daemon); err != nil {
			return fmt.Errorf("daemon %s: %w", daemon, err)
		}
		return nil
	}
	without, err := daemonFor(daemon, nil, others)
	if err != nil || without.Devices == nil || slices.Contains(without.Devices, "") {
		return err
	}
	if own != nil {
		with, err := daemonFor(daemon, own, others)
		if err != nil || slices.Equal(with.MemoryLimits, without.MemoryLimits) && with.ThreadPercentage == without.ThreadPercentage {
			return err
		}
	}
	err = s.neverLess(ctx, &without, others)
	if err == nil {
		_, err = s.mps.EnsureMPS(ctx, without)
	}
	if err != nil {
		// The others' own limits hold as before, so this is no reason to keep a
		// pod from going away. Verifying them tries again.
		klog.FromContext(ctx).Info("The ceilings of an MPS daemon stay as they are for now", "step", stepStartMPS, "device", daemon, "err", err)
	}
	return nil
}

func (s startMPS) there() error {
	if s.mps == nil {
		return fmt.Errorf("%w: this agent was started without --mps-supervisor and cannot reach the MPS daemons of the claim; start it with the flag until such claims are gone", gpu.ErrNotSupported)
	}
	return nil
}

// neverLess leaves the ceilings of a daemon as high as they are if a claim uses it
// whose record does not tell with what limits: because it has none, or because the
// record was lost and is now one of a plan without a daemon.
func (s startMPS) neverLess(ctx context.Context, daemon *gpu.MPSDaemon, others []holder) error {
	if !slices.ContainsFunc(others, func(h holder) bool { return h.began(stepStartMPS, daemon.Name) && !h.hasClient(daemon.Name) }) {
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

// hasClient reports whether the record tells of the limits of a client of the
// daemon.
func (r *record) hasClient(daemon string) bool {
	return slices.ContainsFunc(r.Devices, func(d allocated) bool { return d.MPS != nil && d.MPS.Daemon == daemon })
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
