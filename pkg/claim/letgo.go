package claim

import (
	"context"
	"errors"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// adopt has the record take over what a claim has whose record is lost, if that
// is what the record wants. Until the claim's CDI spec is written anew it is as
// good as lost: undoing leaves it all as the spec tells.
func (r *record) adopt(lost *record, static bool) bool {
	if !slices.EqualFunc(r.Devices, lost.Devices, func(a, b allocated) bool {
		name, err := gpu.ParseDeviceName(a.Device)
		return err == nil && a.Device == b.Device && a.injectionID("", name) == b.injectionID("", name)
	}) {
		return false
	}
	r.Adopted = true
	for i := range r.Journal {
		if e := &r.Journal[i]; e.Step == stepCreatePartition && !static {
			e.Result = []byte("{}") // it may exist, and be the claim's
		}
	}
	return true
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
	for _, name := range names {
		if name.Kind == gpu.KindGPU || name.Kind == gpu.KindMIG {
			if err := m.letDaemonGo(ctx, lost, name.String()); err != nil {
				return err
			}
		}
	}
	if err := lost.lockGPUs(ctx); err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case name.Kind == gpu.KindMonitor: // it has its spec alone
		case name.Kind == gpu.KindMIG:
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

func (m *Manager) letPartitionGo(ctx context.Context, lost job, name gpu.DeviceName) error {
	if m.Partitioning == nil || m.Partitioning.Static {
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
