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
	// Verified claims are still prepared.
	Verified []types.UID
	// Undone claims were left half prepared or half unprepared.
	Undone []types.UID
	// Forgotten claims were prepared in another boot of the machine.
	Forgotten []types.UID
	// Quarantined records were damaged.
	Quarantined []types.UID
	// Unrecorded claims have a CDI spec and no readable record. They hold the
	// devices in the spec.
	Unrecorded []types.UID
	// Busy claims were locked by another call or process.
	Busy []types.UID
	// Swept are the devices and GPUs that Recover has swept, by the name of a step.
	// Recover removes leftovers of the step that no claim needs.
	Swept map[string][]string
}

const (
	// recoverPatience is the timeout of recovering one claim, GPU or daemon. It is
	// longer than the start of an MPS daemon and the reset of a GPU.
	recoverPatience = 30 * time.Second
	// recoverAtOnce limits the concurrent work of one recovery. It exceeds the number
	// of claims on one GPU, so that a GPU that hangs cannot block all workers.
	recoverAtOnce = 128
)

// Recover brings every claim to a known state: it undoes half-finished claims, verifies
// and repairs prepared claims, and sweeps leftovers without an owner. It may be called
// at any time. It recovers claims in parallel, each with its own timeout, so that a GPU
// that hangs does not delay claims on other GPUs. The error joins the errors of all
// claims that could not be recovered.
//
// Recover does not check whether a claim still exists in the API. For that the caller
// lists claims with [Manager.Held], then reads them from the API server, not from a
// cache that may be stale, and passes each claim and the response to [Manager.Release].
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
	for _, s := range slices.Backward(m.steps) {
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

// sweep removes the unneeded leftovers of a step. It returns the names of the devices
// and GPUs that had them. It skips devices and GPUs that are locked; a later sweep
// handles them.
func (m *Manager) sweep(ctx context.Context, s step.Step) ([]string, error) {
	sweeper, ok := s.(step.Sweeper)
	if !ok {
		return nil, nil
	}
	names, unread := sweeper.Leftovers(ctx)
	slices.SortFunc(names, kind.Compare)
	done := make([]bool, len(names))
	err := recoverAll(ctx, len(names), func(ctx context.Context, i int) error {
		unlock, ok, err := m.tryLockFor(ctx, s, names[i])
		if err == nil && ok {
			defer unlock()
			done[i], err = sweeper.Sweep(ctx, names[i], m.journal.Others(""))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		return nil
	})
	var swept []string
	for i, name := range names {
		if done[i] {
			swept = append(swept, name.String())
		}
	}
	return swept, errors.Join(unread, err)
}

// tryLockFor takes the lock for sweeping a step, if the lock is free.
func (m *Manager) tryLockFor(ctx context.Context, s step.Step, name kind.Name) (unlock func(), ok bool, err error) {
	if s.GPUWide() {
		return m.locks.tryLock(ctx, gpuWideLockName(name.Address))
	}
	return m.locks.tryLock(ctx, deviceLockName(name))
}

// recoverAll calls one for every number below n in parallel, and joins the errors
// in order. Each call has the timeout recoverPatience.
func recoverAll(ctx context.Context, n int, one func(ctx context.Context, i int) error) error {
	errs := make([]error, n)
	inParallel(n, recoverAtOnce, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, recoverPatience)
		defer cancel()
		errs[i] = one(ctx, i)
	})
	return errors.Join(errs...)
}

// add appends the report of further claims.
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
	unlock, ok, err := m.locks.tryLock(ctx, claimLockName(claim))
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
	if _, err := m.reach(ctx, claim, stable{}); err != nil {
		return err
	}
	if list != nil {
		*list = append(*list, claim)
		return nil
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
	case Stale:
		return &r.Forgotten
	case Absent, Preparing, Unpreparing, Unrecorded:
	}
	return &r.Undone
}
