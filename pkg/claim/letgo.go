package claim

import (
	"context"
	"errors"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// letGo undoes what a claim without a readable record has done, as far as its
// CDI spec, the witness, tells and other claims have no part in it. What is
// still wanted stays, and is noted as the claim's. The caller holds the locks of
// the GPUs.
func (m *Manager) letGo(ctx context.Context, lost job, want *record) error {
	names, err := lost.names()
	if err != nil {
		return err
	}
	for i, d := range lost.Devices {
		if names[i].Kind != gpu.KindTimeSlice {
			if err := m.letDaemonGo(ctx, lost, d.Device, want); err != nil {
				return err
			}
		}
		if names[i].Kind == gpu.KindMIG {
			err = m.letPartitionGo(ctx, lost, names[i], want)
		} else if m.TimeSlicing != nil {
			err = m.restoreInterval(ctx, names[i].Address, lost.around)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) letDaemonGo(ctx context.Context, lost job, device string, want *record) error {
	if m.MPS == nil || want.plans(stepStartMPS, device) {
		return nil
	}
	unused, err := lost.nobodyElse(ctx, stepStartMPS, device)
	if err != nil || !unused {
		return err
	}
	err = m.MPS.StopMPS(ctx, device)
	if errors.Is(err, gpu.ErrNotReady) {
		// There need not be such a daemon at all. Every recovery looks again.
		klog.FromContext(ctx).Info("An MPS daemon may go on for now", "device", device, "err", err)
		return nil
	}
	return err
}

func (m *Manager) letPartitionGo(ctx context.Context, lost job, name gpu.DeviceName, want *record) error {
	if m.Partitioning == nil || m.Partitioning.Static || want.adopt(name.String()) {
		return nil
	}
	unused, err := lost.nobodyElse(ctx, stepCreatePartition, name.String())
	if err != nil || !unused {
		return err
	}
	if err := m.Partitioning.MIG.DestroyPartition(ctx, name.Address, name.Profile, name.Start); err != nil && !errors.Is(err, gpu.ErrNotFound) {
		return err
	}
	klog.FromContext(ctx).Info("Destroyed the partition of a claim without a record", "device", name.String())
	if err := m.modeOff(ctx, name.Address, lost.around); err != nil && !errors.Is(err, gpu.ErrInUse) {
		return err
	}
	return nil
}

// plans reports whether a record, which may be nil, has the step in its plan.
func (r *record) plans(step, device string) bool {
	return r != nil && slices.ContainsFunc(r.Journal, func(e entry) bool { return e.Step == step && e.Device == device })
}

// adopt notes that the partition of a device may exist already, and be the
// claim's. It reports whether the record, which may be nil, is to have it.
func (r *record) adopt(device string) bool {
	if r == nil {
		return false
	}
	for i := range r.Journal {
		if e := &r.Journal[i]; e.Step == stepCreatePartition && e.Device == device {
			e.Result = []byte("{}")
			return true
		}
	}
	return false
}
