package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
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

const (
	// recoverPatience is how long one claim, GPU or daemon may take to recover:
	// longer than the start of an MPS daemon and the reset of a GPU take.
	recoverPatience = 30 * time.Second
	// recoverAtOnce bounds the work of one recovery. Claims of a GPU that hangs may
	// wait for each other, and there are fewer of them than this.
	recoverAtOnce = 128
)

// Recover brings every claim to rest: what was half done is undone, what is
// prepared is verified and repaired. It may be called at any time. Claims are
// recovered at the same time, each within a time of its own, so that a GPU that
// hangs keeps no claim on another GPU from being recovered. The error joins those
// of all claims that could not be brought to rest.
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
	claims = slices.Compact(claims)
	reports := make([]Report, len(claims))
	errs = append(errs, recoverAll(ctx, len(claims), func(ctx context.Context, i int) error {
		if err := m.settle(ctx, claims[i], &reports[i]); err != nil {
			return fmt.Errorf("recover claim %s: %w", claims[i], err)
		}
		return nil
	}))
	for _, r := range reports {
		report.add(r)
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
	slices.Sort(keys)
	names, done := make([]kind.Name, len(keys)), make([]bool, len(keys))
	err = recoverAll(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		if names[i], err = kind.Parse(keys[i]); err != nil {
			return err
		}
		if done[i], err = m.settleGPU(ctx, names[i].Address, settle); err != nil {
			return fmt.Errorf("%s: %w", describe(names[i].Address), err)
		}
		return nil
	})
	var settled []gpu.PCIAddress
	for i, name := range names {
		if done[i] {
			settled = append(settled, name.Address)
		}
	}
	return settled, err
}

// recoverAll recovers n things at the same time, each within recoverPatience, and
// joins their errors in their order.
func recoverAll(ctx context.Context, n int, one func(ctx context.Context, i int) error) error {
	errs := make([]error, n)
	inParallel(n, recoverAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, recoverPatience)
		defer cancel()
		errs[i] = one(ctx, i)
	})
	return errors.Join(errs...)
}

// add appends what was found about further claims.
func (r *Report) add(more Report) {
	r.Verified = append(r.Verified, more.Verified...)
	r.Undone = append(r.Undone, more.Undone...)
	r.Forgotten = append(r.Forgotten, more.Forgotten...)
	r.Quarantined = append(r.Quarantined, more.Quarantined...)
	r.Unrecorded = append(r.Unrecorded, more.Unrecorded...)
	r.Busy = append(r.Busy, more.Busy...)
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
// spec that tells what the claim holds stays; part of one is removed, and so is one
// that names no device.
func (m *Manager) settleSpec(ctx context.Context, claim types.UID, report *Report) error {
	h, err := m.witness(ctx, claim)
	switch {
	case errors.Is(err, gpu.ErrNotFound), errors.Is(err, gpu.ErrCorrupt):
		return m.CDI.Remove(ctx, claim)
	case err != nil:
		return err
	case len(h.Devices) == 0:
		return m.CDI.Remove(ctx, claim)
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
