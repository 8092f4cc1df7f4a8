// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/step"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Phase is the state of a claim.
type Phase = journal.Phase

// The phases. They are derived from the files on the disk.
const (
	// Absent: there is no record.
	Absent = journal.Absent
	// Preparing: some steps of the plan may have been done.
	Preparing = journal.Preparing
	// Prepared: all steps are done; containers may run.
	Prepared = journal.Prepared
	// Unpreparing: some steps may have been undone.
	Unpreparing = journal.Unpreparing
	// Stale: the record was written before the last reboot.
	Stale = journal.Stale
	// Unrecorded: there is no readable record, but a CDI spec.
	Unrecorded = journal.Unrecorded
)

// target is the phase that a caller requests for a claim. A target takes a claim from a phase
// at rest; [Manager.reach] does the rest, which is the same for all targets.
type target interface {
	// devices of the claim to prepare, none for a target that prepares nothing.
	devices() plan.Plan
	// fromAbsent takes a claim without a record to the target and returns its new record. The
	// job has the devices of a lost record. cleared is set if this call has undone the claim.
	fromAbsent(ctx context.Context, m *Manager, j *job, cleared bool) (*journal.Record, error)
	// fromPrepared reports whether a prepared claim is at the target. If not, the claim may be
	// undone.
	fromPrepared(ctx context.Context, m *Manager, j *job) (reached bool, err error)
}

// stable keeps a prepared claim prepared and undoes any other.
type stable struct{}

func (stable) devices() plan.Plan { return plan.Plan{} }

func (stable) fromAbsent(context.Context, *Manager, *job, bool) (*journal.Record, error) {
	return nil, nil
}

func (stable) fromPrepared(ctx context.Context, m *Manager, j *job) (bool, error) {
	return true, m.verify(ctx, j)
}

// prepared is a claim whose containers may run.
type prepared struct {
	allocation plan.Allocation
	inputs     plan.Inputs
	// fromAPI are the pods of other claims; nil if they were not read from the API
	// server.
	fromAPI podsOfClaims
	// again is set if the claim must be prepared already.
	again bool
}

func (to prepared) devices() plan.Plan { return to.allocation.Plan() }

func (to prepared) fromAbsent(ctx context.Context, m *Manager, j *job, _ bool) (*journal.Record, error) {
	if to.again {
		return nil, ErrUnprepared
	}
	p, err := plan.Make(to.allocation, to.inputs)
	if err != nil {
		return nil, err
	}
	if len(j.Devices) > 0 {
		return nil, fmt.Errorf("%w: the record of the claim, which was prepared before and holds %s until its pods have ended: delete these pods", gpu.ErrNotFound, j.Names())
	}
	j.Record = journal.New(m.options.BootID, p, m.steps.Journal(p))
	j.AddPods(to.allocation.Pods)
	return j.Record, m.build(ctx, j, to)
}

// fromPrepared verifies a claim that has the wanted devices. The claim was reallocated if it has
// others.
func (to prepared) fromPrepared(ctx context.Context, m *Manager, j *job) (bool, error) {
	switch {
	case j.HasAllocation(to.devices()):
	case to.again:
		return true, ErrUnprepared
	default:
		return absent{}.fromPrepared(ctx, m, j)
	}
	if j.AddPods(to.allocation.Pods) {
		if err := m.journal.Save(j.Record); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot record the pods of the claim")
		}
	}
	return true, m.verify(ctx, j)
}

// absent is a claim that holds nothing.
type absent struct {
	// stopped is set if the kubelet has stopped the containers of the claim.
	stopped bool
	// reserved are the pods for which the API server now reserves the claim. It
	// contains only pods that the caller knows.
	reserved []types.UID
}

func (absent) devices() plan.Plan { return plan.Plan{} }

// fromAbsent releases the devices of a lost record. Without a record there may still be a CDI
// spec, or partly written files of both.
func (to absent) fromAbsent(ctx context.Context, m *Manager, j *job, cleared bool) (*journal.Record, error) {
	if cleared {
		return nil, nil
	}
	if err := m.checkEnded(ctx, j, to); err != nil {
		return nil, err
	}
	if err := m.releaseLost(ctx, j); err != nil {
		return nil, err
	}
	return nil, m.journal.Clear(ctx, j.claim)
}

func (to absent) fromPrepared(ctx context.Context, m *Manager, j *job) (bool, error) {
	return false, m.checkEnded(ctx, j, to)
}

// reach brings a claim to a target and returns its record, nil if it is absent. The caller holds
// the lock of the claim.
//
//	                build
//	Absent ─────────▶ Preparing ──────────────▶ Prepared ⟲ verify
//	▲ ▲ ▲               │ failure, crash           │ unprepare, or the claim
//	│ │ └───── undo ────┘                          ▼ was reallocated
//	│ └─────── undo ──────────────────────── Unpreparing ⟲ failure: stay, retry
//	└───────── clear ────── Stale:    any of them after a reboot
//
// A claim whose record was lost is Absent and holds the devices of its CDI spec. It is not
// prepared again: its containers may run.
func (m *Manager) reach(ctx context.Context, claim types.UID, to target) (*journal.Record, error) {
	r, err := m.journal.Load(ctx, claim)
	if err != nil {
		return nil, err
	}
	lost := journal.NoHolder()
	if r == nil {
		if lost, err = m.journal.LostHolder(ctx, claim); err != nil {
			return nil, err
		}
	}
	held := lost.Plan
	if r != nil {
		held = r.Plan
	}
	devices := slices.Concat(held.Names(), to.devices().Names())
	unlock, err := m.locks.lock(ctx, deviceLockNames(devices)...)
	if err != nil {
		return nil, err
	}
	defer unlock()
	wide := &gpuWideLock{locks: m.locks, gpus: gpusOfNames(devices)}
	defer wide.release()

	j := &job{Work: step.Work{Record: r, Others: m.journal.Others(claim)}, claim: claim, wide: wide}
	cleared := false
	var journalErr error
	for {
		switch m.journal.Phase(j.Record) {
		case Absent, Unrecorded:
			j.Record = lost.Record
			return to.fromAbsent(ctx, m, j, cleared)
		case Prepared:
			if reached, err := to.fromPrepared(ctx, m, j); reached || err != nil {
				return j.Record, err
			}
			// If the disk is full, undo anyway so that the pod can end: undoing
			// is idempotent and the record names every step to undo.
			j.Unpreparing = true
			journalErr = m.journal.Save(j.Record)
		case Preparing, Unpreparing:
			if err := m.undo(ctx, j); err != nil {
				return nil, errors.Join(err, journalErr)
			}
			klog.FromContext(ctx).Info("Unprepared", "devices", j.Names())
			cleared, j.Record = j.MayHaveSpec(), nil
		case Stale:
			if err := m.journal.Clear(ctx, claim); err != nil {
				return nil, err
			}
			klog.FromContext(ctx).Info("Removed the record of another boot", "devices", j.Names())
			cleared, j.Record = true, nil
		}
	}
}
