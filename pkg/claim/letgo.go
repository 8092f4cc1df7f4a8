package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// adopt has the record take over what a claim has whose record is lost, if that
// is what the record wants. Until the claim's CDI spec is written anew it is as
// good as lost: undoing leaves it all as the spec tells.
func (r *record) adopt(lost *record, static bool) bool {
	if !slices.EqualFunc(r.Devices, lost.Devices, func(a, b allocated) bool {
		name, err := kind.Parse(a.Device)
		return err == nil && a.Device == b.Device && a.injectionID("", name) == b.injectionID("", name)
	}) {
		return false
	}
	r.Adopted = true
	for i := range r.Journal {
		e := &r.Journal[i]
		if e.Step != stepCreatePartition {
			continue
		}
		was := lost.Journal[slices.IndexFunc(lost.Journal, func(w entry) bool { return w.Step == e.Step && w.Device == e.Device })]
		if made, err := was.partition(); err == nil && (!static || !made.Found) {
			e.Result = was.Result
		}
	}
	return true
}

// undoAdopted undoes what an adopted record has done that the CDI spec does not
// tell of: partitions that were made anew, because the claim's were gone.
func (m *Manager) undoAdopted(ctx context.Context, j job) error {
	witness, err := m.lost(ctx, j.Claim.UID, nil)
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(j.Journal) {
		if e.Step != stepCreatePartition || e.State == "" {
			continue
		}
		now, err := e.partition()
		if err != nil {
			return err
		}
		was, err := witness.partition(e.Device)
		if err != nil {
			return err
		}
		if now.UUID != "" && now.UUID == was.UUID {
			continue
		}
		if err := j.lockFor(ctx, e); err != nil {
			return fmt.Errorf("undo %s: %w", e.Step, err)
		}
		if err := m.undoStep(ctx, j, e); err != nil {
			return err
		}
	}
	return nil
}

// releaseLost undoes what the claim of an adopted record may have done before its
// record was lost and the journal has no step for, because it was made with other
// settings. While the claim had its devices, it counted as a user of this; see
// [holder.began]. Partitions always have a step.
func (m *Manager) releaseLost(ctx context.Context, j job) error {
	names, err := j.names()
	if err != nil {
		return err
	}
	j.wide.release()
	if err := m.releaseDaemons(ctx, j, names); err != nil {
		return err
	}
	if m.TimeSlicing == nil {
		return nil
	}
	for _, name := range names {
		if name.Kind == kind.MIG || name.Kind == kind.Monitor || j.has(stepSetTimeSlice, name.Address.DeviceName()) {
			continue
		}
		if err := j.lockGPUs(ctx); err != nil {
			return err
		}
		if err := m.restoreInterval(ctx, name.Address, j.around); err != nil {
			return err
		}
	}
	return nil
}

// stillLost reports whether the record has been adopted for a lost one and has
// not replaced its CDI spec yet.
func (r *record) stillLost() bool {
	return r.Adopted && slices.ContainsFunc(r.Journal, func(e entry) bool { return e.Step == stepWriteCDI && e.State == "" })
}

// letGo undoes what a claim without a readable record has done, as far as its
// CDI spec, the witness, tells and other claims have no part in it. The spec
// itself goes last. The caller holds the locks of the devices, and has the GPU-wide
// lock afterwards.
func (m *Manager) letGo(ctx context.Context, lost job) error {
	if len(lost.Devices) == 0 {
		return nil
	}
	names, err := lost.names()
	if err != nil {
		return err
	}
	if err := m.releaseDaemons(ctx, lost, names); err != nil {
		return err
	}
	if err := lost.lockGPUs(ctx); err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case name.Kind == kind.Monitor: // it has its spec alone
		case name.Kind == kind.MIG:
			err = m.letPartitionGo(ctx, lost, name)
		case m.TimeSlicing != nil:
			err = m.restoreInterval(ctx, name.Address, lost.around)
		}
		if err != nil {
			return err
		}
	}
	return m.CDI.Remove(ctx, lost.Claim.UID)
}

// releaseDaemons releases the MPS daemons of the devices with these names that the
// journal has no step for.
func (m *Manager) releaseDaemons(ctx context.Context, lost job, names []kind.Name) error {
	for _, name := range names {
		if (name.Kind == kind.GPU || name.Kind == kind.MIG) && !lost.has(stepStartMPS, name.String()) {
			if err := m.letDaemonGo(ctx, lost, name.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// has reports whether the journal has the step for the device.
func (r *record) has(step, device string) bool {
	return slices.ContainsFunc(r.Journal, func(e entry) bool { return e.Step == step && e.Device == device })
}

// letDaemonGo lets the MPS daemon go that the claim may have used. There need
// not be one at all, so a supervisor that is away is no reason to stop: every
// recovery looks again.
func (m *Manager) letDaemonGo(ctx context.Context, lost job, device string) error {
	if m.MPS == nil {
		return nil
	}
	err := startMPS{m.MPS}.release(ctx, device, nil, lost.around)
	if errors.Is(err, gpu.ErrNotReady) {
		klog.FromContext(ctx).Info("An MPS daemon may go on for now", "device", device, "err", err)
		return nil
	}
	return err
}

// letPartitionGo destroys the partition of a claim without a record if its CDI
// spec says that this driver made it, whether or not it makes any now.
func (m *Manager) letPartitionGo(ctx context.Context, lost job, name kind.Name) error {
	if m.Partitioning == nil {
		return nil
	}
	for _, e := range lost.Journal {
		if e.Step != stepCreatePartition || e.Device != name.String() {
			continue
		}
		if made, err := e.partition(); err != nil || made.Found {
			klog.FromContext(ctx).Info("Leaving the partition of a claim without a record, which may be an administrator's; destroy it with nvidia-smi mig -dci and -dgi if nobody needs it", "device", e.Device, "err", err)
			continue
		}
		if err := m.undoStep(ctx, lost, e); err != nil {
			return err
		}
	}
	if err := m.modeOff(ctx, name.Address, lost.around); err != nil && !errors.Is(err, gpu.ErrInUse) {
		return err
	}
	return nil
}
