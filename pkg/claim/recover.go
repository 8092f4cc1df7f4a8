// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/step"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Report lists what [Manager.Recover] found, each in ascending order of the UID.
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
	// Busy claims are being worked on by another call or process at this moment.
	Busy []types.UID
	// Swept are the devices and GPUs, by the name of a step, from which Recover has
	// removed what the step had left and no claim needed.
	Swept map[string][]string
}

const (
	// recoverPatience is how long one claim, GPU or daemon may take to recover:
	// longer than the start of an MPS daemon and the reset of a GPU take.
	recoverPatience = 30 * time.Second
	// recoverAtOnce bounds the work of one recovery. Claims of a GPU that hangs may
	// wait for each other, and there are fewer of them than this.
	recoverAtOnce = 128
)

// Recover brings every claim to a known state: what was half done is undone, what is
// prepared is verified and repaired, what has no owner is swept. It may be called at
// any time. Claims are recovered at the same time, each within a time of its own, so
// that a GPU that hangs keeps no claim on another GPU from being recovered. The error
// joins those of all claims that could not be recovered.
//
// The caller finds out whether a claim still exists in the API: it lists with
// [Manager.Held] first, then reads from the API server, not from a cache that may lag
// behind, and passes the claims that are gone to [Manager.Unprepare].
func (m *Manager) Recover(ctx context.Context) (Report, error) {
	var report Report
	claims, err := m.journal.Claims(ctx)
	if err != nil {
		return report, err
	}
	reports := make([]Report, len(claims))
	errs := []error{recoverAll(ctx, len(claims), func(ctx context.Context, i int) error {
		if err := m.recoverClaim(ctx, claims[i], &reports[i]); err != nil {
			return fmt.Errorf("recover claim %s: %w", claims[i], err)
		}
		return nil
	})}
	for _, r := range reports {
		report.add(r)
	}
	for _, s := range m.steps {
		swept, err := m.sweep(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep %s: %w", s.Name(), err))
		}
		if len(swept) > 0 {
			if report.Swept == nil {
				report.Swept = make(map[string][]string)
			}
			report.Swept[s.Name()] = swept
		}
	}
	return report, errors.Join(errs...)
}

// sweep removes what a step has left and no claim needs, and returns the names of the
// devices and GPUs that it was removed from. One that is being worked on is left for a
// later sweep.
func (m *Manager) sweep(ctx context.Context, s step.Step) ([]string, error) {
	names, err := s.Leftovers(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	done := make([]bool, len(names))
	err = recoverAll(ctx, len(names), func(ctx context.Context, i int) (err error) {
		if done[i], err = m.sweepDevice(ctx, s, names[i]); err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		return nil
	})
	var swept []string
	for i, name := range names {
		if done[i] {
			swept = append(swept, name)
		}
	}
	return swept, err
}

func (m *Manager) sweepDevice(ctx context.Context, s step.Step, device string) (bool, error) {
	name, err := kind.Parse(device)
	if err != nil {
		return false, err
	}
	unlock, ok, err := m.tryFor(ctx, s, name)
	if err != nil || !ok {
		return false, err
	}
	defer unlock()
	return s.Sweep(ctx, device, m.journal.Others(""))
}

// tryFor takes the lock under which a step is swept, if it is free.
func (m *Manager) tryFor(ctx context.Context, s step.Step, name kind.Name) (unlock func(), ok bool, err error) {
	if s.GPUWide() {
		return m.locks.tryGPU(ctx, name.Address)
	}
	return m.locks.tryDevice(ctx, name)
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

// recoverClaim brings one claim to a known state and adds it to the report.
func (m *Manager) recoverClaim(ctx context.Context, claim types.UID, report *Report) error {
	unlock, ok, err := m.locks.try(ctx, claimLock(claim))
	if err != nil {
		return err
	}
	if !ok {
		report.Busy = append(report.Busy, claim)
		return nil
	}
	defer unlock()

	r, err := m.journal.Read(claim)
	var list *[]types.UID
	switch {
	case errors.Is(err, gpu.ErrCorrupt):
		report.Quarantined = append(report.Quarantined, claim)
	case errors.Is(err, gpu.ErrNotSupported):
	case err != nil:
		return err
	case r != nil:
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", klog.KRef(r.Claim.Namespace, r.Claim.Name), "claimUID", claim))
		list = report.listFor(m.journal.Phase(r))
	}
	if _, err := m.reach(ctx, claim, toRest, wanted{}); err != nil {
		return err
	}
	if list != nil {
		*list = append(*list, claim)
		if list != &report.Undone || !r.IsStillLost() {
			return nil
		}
	}
	unrecorded, err := m.journal.SweepSpec(ctx, claim)
	if unrecorded {
		report.Unrecorded = append(report.Unrecorded, claim)
	}
	return err
}

// listFor returns the list for claims that were found in a phase.
func (r *Report) listFor(phase journal.Phase) *[]types.UID {
	switch phase {
	case Prepared:
		return &r.Verified
	case Outlived:
		return &r.Forgotten
	default:
		return &r.Undone
	}
}
