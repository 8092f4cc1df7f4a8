package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// Report is what [Manager.Recover] found, each in ascending order of the UID.
type Report struct {
	// Verified claims are prepared, as they were.
	Verified []types.UID
	// Undone claims were left half prepared or half unprepared.
	Undone []types.UID
	// Forgotten claims were prepared in another boot of the machine.
	Forgotten []types.UID
	// Quarantined records were damaged.
	Quarantined []types.UID
	// Unrecorded claims have a CDI spec and no readable record; they hold what
	// the spec names.
	Unrecorded []types.UID
	// Busy claims are being worked on by somebody else at this moment.
	Busy []types.UID
	// ModesOff are GPUs whose MIG mode claims had left on, and that are whole
	// again.
	ModesOff []gpu.PCIAddress
	// IntervalsRestored are GPUs whose time slice claims had left changed.
	IntervalsRestored []gpu.PCIAddress
	// DaemonsStopped are MPS daemons that no claim used, by name.
	DaemonsStopped []string
}

// Recover brings every claim to rest: what was half done is undone, what is
// prepared is verified and repaired. It may be called at any time. A claim that
// cannot be brought to rest does not keep the others from it; the error joins
// all of these.
//
// Whether a claim still exists in the API is for the caller to find out: list
// with [Manager.Held] first and ask the API server then, not a cache that may
// lag behind, and pass the claims that are gone to [Manager.Unprepare].
func (m *Manager) Recover(ctx context.Context) (Report, error) {
	var report Report
	var errs []error
	keys, err := m.Records.Keys()
	if err != nil {
		return report, err
	}
	specs, err := m.CDI.List(ctx)
	if err != nil {
		return report, err
	}
	claims := make([]types.UID, 0, len(keys)+len(specs))
	for _, key := range keys {
		claims = append(claims, types.UID(key))
	}
	claims = append(claims, specs...)
	slices.Sort(claims)
	for _, claim := range slices.Compact(claims) {
		if err := m.settle(ctx, claim, &report); err != nil {
			errs = append(errs, fmt.Errorf("recover claim %s: %w", claim, err))
		}
	}
	report.ModesOff, err = m.settleModes(ctx)
	if err != nil {
		errs = append(errs, fmt.Errorf("recover MIG modes: %w", err))
	}
	report.IntervalsRestored, err = m.settleIntervals(ctx)
	if err != nil {
		errs = append(errs, fmt.Errorf("recover time slices: %w", err))
	}
	report.DaemonsStopped, err = m.settleDaemons(ctx)
	if err != nil {
		errs = append(errs, fmt.Errorf("recover MPS daemons: %w", err))
	}
	return report, errors.Join(errs...)
}

// settleGPUs brings to rest every GPU that there is a record of, under its
// GPU-wide lock,
// and returns those for which settle reports success. One that somebody works on
// is left for a later try.
func (m *Manager) settleGPUs(ctx context.Context, records *store.Store, settle func(context.Context, gpu.PCIAddress) (bool, error)) ([]gpu.PCIAddress, error) {
	keys, err := records.Keys()
	if err != nil {
		return nil, err
	}
	var settled []gpu.PCIAddress
	var errs []error
	for _, key := range keys {
		name, err := gpu.ParseDeviceName(key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done, err := m.settleGPU(ctx, name.Address, settle)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", describe(name.Address), err))
		}
		if done {
			settled = append(settled, name.Address)
		}
	}
	return settled, errors.Join(errs...)
}

func (m *Manager) settleGPU(ctx context.Context, address gpu.PCIAddress, settle func(context.Context, gpu.PCIAddress) (bool, error)) (bool, error) {
	unlock, ok, err := m.locks.tryGPU(ctx, address)
	if err != nil || !ok {
		return false, err
	}
	defer unlock()
	return settle(ctx, address)
}

// settle brings one claim to rest and adds it to the report.
func (m *Manager) settle(ctx context.Context, claim types.UID, report *Report) error {
	unlock, ok, err := m.locks.try(ctx, claimLock(claim))
	if err != nil {
		return err
	}
	if !ok {
		report.Busy = append(report.Busy, claim)
		return nil
	}
	defer unlock()

	r, err := m.read(claim)
	var list *[]types.UID
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		report.Quarantined = append(report.Quarantined, claim)
	case errors.Is(err, gpu.ErrNotSupported):
	case err != nil:
		return err
	case r != nil:
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", klog.KRef(r.Claim.Namespace, r.Claim.Name), "claimUID", claim))
		switch m.phase(r) {
		case Prepared:
			list = &report.Verified
		case Outlived:
			list = &report.Forgotten
		default:
			list = &report.Undone
		}
	}
	if _, err := m.reach(ctx, claim, toRest, wanted{}); err != nil {
		return err
	}
	if list != nil {
		*list = append(*list, claim)
		if list != &report.Undone || !r.stillLost() {
			return nil
		}
	}
	return m.settleSpec(ctx, claim, report)
}

// settleSpec looks at what is left of a claim that has no readable record. A
// spec that tells what the claim holds stays; part of one is removed.
func (m *Manager) settleSpec(ctx context.Context, claim types.UID, report *Report) error {
	_, err := m.witness(ctx, claim)
	switch {
	case errors.Is(err, gpu.ErrNotFound), errors.Is(err, gpu.ErrCorrupt):
		return m.CDI.Remove(ctx, claim)
	case err != nil:
		return err
	}
	report.Unrecorded = append(report.Unrecorded, claim)
	return nil
}

// load is read with damaged records moved aside, which is as if there were
// none. The caller holds the lock of the claim, or it could move aside what
// somebody has just written.
func (m *Manager) load(ctx context.Context, claim types.UID) (*record, error) {
	r, err := m.read(claim)
	if !errors.Is(err, gpu.ErrCorrupt) {
		return r, err
	}
	klog.FromContext(ctx).Error(err, "Moving the record to quarantine", "claimUID", claim)
	return nil, m.Records.Quarantine(string(claim), err.Error())
}
