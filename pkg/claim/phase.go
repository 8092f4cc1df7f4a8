// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"

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
	// Outlived: the record is of another boot of the machine.
	Outlived = journal.Outlived
	// Unrecorded: there is no readable record, but a CDI spec.
	Unrecorded = journal.Unrecorded
)

// goal is the phase that a caller requests.
type goal int

const (
	// toStable keeps a prepared claim prepared and undoes any other.
	toStable goal = iota
	toPrepared
	toAbsent
)

// wanted is a claim to prepare.
type wanted struct {
	// Plan has only the devices as they were allocated if refusal is set.
	plan.Plan
	inputs plan.Inputs
	// refusal is the error of the plan. It is ignored if the claim is prepared
	// already.
	refusal error
	// pods that the claim is reserved for.
	pods []types.UID
	// asked are the pods of other claims; nil if they were not read from the API
	// server.
	asked answers
	// reserved are the pods for which the API server now reserves the claim. It
	// contains only pods that the caller knows.
	reserved []types.UID
	// stopped is set if the kubelet has stopped the containers of the claim.
	stopped bool
}

// reach brings a claim to its goal and returns its record, nil if it is absent.
// The record and plan of want are used only for toPrepared. The caller holds the lock of
// the claim.
//
//	                build
//	Absent ─────────▶ Preparing ──────────────▶ Prepared ⟲ verify
//	▲ ▲ ▲               │ failure, crash           │ unprepare, or the claim
//	│ │ └───── undo ────┘                          ▼ was reallocated
//	│ └─────── undo ──────────────────────── Unpreparing ⟲ failure: stay, retry
//	└───────── clear ────── Outlived: any of them after a reboot
//
// A claim whose record was lost is Absent and holds the devices of its CDI spec. It is not
// prepared again: its containers may run.
func (m *Manager) reach(ctx context.Context, claim types.UID, goal goal, want wanted) (*journal.Record, error) {
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
	about := onDevicesOf(want.Plan, lost.Plan)
	if r != nil {
		about = onDevicesOf(r.Plan, want.Plan)
	}
	unlock, err := m.locks.lockDevices(ctx, about)
	if err != nil {
		return nil, err
	}
	defer unlock()
	wide := &gpuWide{locks: m.locks, gpus: about.gpus}
	defer wide.release()

	others := m.journal.Others(claim)
	work := func(r *journal.Record) *job {
		return &job{Work: step.Work{Record: r, Others: others}, wide: wide, asked: want.asked, reserved: want.reserved}
	}
	var journalErr error
	for {
		switch m.journal.Phase(r) {
		case Absent:
			switch goal {
			case toPrepared:
				if want.refusal != nil {
					return nil, want.refusal
				}
				if len(lost.Devices) > 0 {
					return nil, fmt.Errorf("%w: the record of the claim, which was prepared before and holds %s until its pods have ended: delete these pods", gpu.ErrNotFound, lost.Names())
				}
				fresh := journal.New(m.options.BootID, want.Plan, m.steps.Journal(want.Plan))
				fresh.AddPods(want.pods)
				return fresh, m.build(ctx, work(fresh), want.inputs)
			case toAbsent:
				// Without a record there may still be a CDI spec, or partly
				// written files of both.
				if err := m.endLost(ctx, work(lost.Record), want.stopped); err != nil {
					return nil, err
				}
				return nil, m.journal.Clear(ctx, claim)
			case toStable:
				return nil, nil
			default:
				return nil, fmt.Errorf("claim %s: unknown goal %d", claim, goal)
			}
		case Prepared:
			if goal == toPrepared && r.HasAllocation(want.Plan) && r.AddPods(want.pods) {
				if err := m.journal.Save(r); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot record the pods of the claim")
				}
			}
			if goal == toStable || goal == toPrepared && r.HasAllocation(want.Plan) {
				return r, m.verify(ctx, work(r))
			}
			if err := m.checkEnded(ctx, work(r), want.stopped); err != nil {
				return nil, err
			}
			// If the disk is full, undo anyway so that the pod can end: undoing
			// is idempotent and the record names every step to undo.
			r.Unpreparing = true
			journalErr = m.journal.Save(r)
		case Preparing, Unpreparing:
			if err := m.undo(ctx, work(r)); err != nil {
				return nil, errors.Join(err, journalErr)
			}
			klog.FromContext(ctx).Info("Unprepared", "devices", r.Names())
			if goal == toAbsent && r.MayHaveSpec() {
				return nil, nil // undo has removed the spec and the record
			}
			r = nil
		case Outlived:
			if err := m.journal.Clear(ctx, claim); err != nil {
				return nil, err
			}
			klog.FromContext(ctx).Info("Removed the record of another boot", "devices", r.Names())
			r = nil
		case Unrecorded:
			fallthrough
		default:
			return nil, fmt.Errorf("claim %s: no way on from phase %s", r.Claim, m.journal.Phase(r))
		}
	}
}

// endLost releases the devices of a claim without a readable record. It returns an
// error if a process still uses one of them.
func (m *Manager) endLost(ctx context.Context, j *job, stopped bool) error {
	if err := m.checkEnded(ctx, j, stopped); err != nil {
		return err
	}
	return m.releaseLost(ctx, j)
}
