package claim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Phase is where a claim stands in its life.
type Phase string

// The phases. They follow from what is on the disk.
const (
	// Absent: there is no record.
	Absent Phase = "Absent"
	// Preparing: some steps of the plan may have been done.
	Preparing Phase = "Preparing"
	// Prepared: all steps are done; containers may run.
	Prepared Phase = "Prepared"
	// Unpreparing: some steps may have been undone.
	Unpreparing Phase = "Unpreparing"
	// Outlived: the record is of another boot of the machine.
	Outlived Phase = "Outlived"
	// Unrecorded: there is no readable record, but a CDI spec.
	Unrecorded Phase = "Unrecorded"
)

// phase of a record, nil for none.
func (m *Manager) phase(r *record) Phase {
	switch {
	case r == nil:
		return Absent
	case r.BootID != m.BootID:
		return Outlived
	case r.Unpreparing:
		return Unpreparing
	case r.done():
		return Prepared
	default:
		return Preparing
	}
}

// goal is what a caller wants of a claim.
type goal int

const (
	// toRest leaves a claim prepared or absent, whichever it can be.
	toRest goal = iota
	toPrepared
	toAbsent
)

// wanted is what is to be prepared.
type wanted struct {
	// record has the devices as they were allocated.
	*record
	// plan completes it. A claim that is prepared already is not judged again.
	plan func(context.Context) error
	// asked is what the API server said of other claims; nil if it was not asked.
	asked answers
}

// reach brings a claim to its goal and returns its record, nil if it is absent.
// want is for toPrepared. The caller holds the lock of the claim.
//
//	                build
//	Absent ─────────▶ Preparing ──────────────▶ Prepared ⟲ verify
//	▲ ▲ ▲               │ failure, crash           │ unprepare, or the claim
//	│ │ └───── undo ────┘                          ▼ was allocated anew
//	│ └─────── undo ──────────────────────── Unpreparing ⟲ failure: stay, retry
//	└───────── clear ────── Outlived: any of them after a reboot
func (m *Manager) reach(ctx context.Context, claim types.UID, goal goal, want wanted) (*record, error) {
	r, err := m.load(ctx, claim)
	if err != nil {
		return nil, err
	}
	lost, err := m.lost(ctx, claim, r)
	if err != nil {
		return nil, err
	}
	about := onDevicesOf(r, want.record, lost.record)
	unlock, err := m.locks.lockDevices(ctx, about)
	if err != nil {
		return nil, err
	}
	defer unlock()
	wide := &gpuWide{locks: m.locks, gpus: about.gpus}
	defer wide.release()

	around := &around{m: m, claim: claim, asked: want.asked}
	var journalErr error
	for {
		switch m.phase(r) {
		case Absent:
			switch goal {
			case toPrepared:
				if err := want.plan(ctx); err != nil {
					return nil, err
				}
				if !want.adopt(lost.record, m.static()) {
					if err := m.checkEnded(ctx, job{lost.record, around, wide}); err != nil {
						return nil, err
					}
					if err := m.letGo(ctx, job{lost.record, around, wide}); err != nil {
						return nil, err
					}
				}
				return want.record, m.build(ctx, job{want.record, around, wide})
			case toAbsent:
				// Without a record there may still be a CDI spec, or the
				// beginnings of both.
				if err := m.checkEnded(ctx, job{lost.record, around, wide}); err != nil {
					return nil, err
				}
				if err := m.letGo(ctx, job{lost.record, around, wide}); err != nil {
					return nil, err
				}
				return nil, m.clear(ctx, claim)
			default:
				return nil, nil
			}
		case Prepared:
			if goal == toPrepared && r.sameAllocation(want.record) && r.addPods(want.Pods) {
				if err := m.save(r); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot note the pods of the claim")
				}
			}
			if goal == toRest || goal == toPrepared && r.sameAllocation(want.record) {
				return r, m.verify(ctx, job{r, around, wide})
			}
			if err := m.checkEnded(ctx, job{r, around, wide}); err != nil {
				return nil, err
			}
			// Undoing is idempotent and the record names all there is to undo,
			// so a full disk need not keep a pod from going away.
			r.Unpreparing = true
			journalErr = m.save(r)
		case Preparing, Unpreparing:
			if err := m.undo(ctx, job{r, around, wide}); err != nil {
				return nil, errors.Join(err, journalErr)
			}
			if r.stillLost() && goal != toRest {
				if lost, err = m.lost(ctx, claim, nil); err != nil {
					return nil, err
				}
			}
			klog.FromContext(ctx).Info("Unprepared", "devices", r.deviceNames())
			r = nil
		case Outlived:
			if err := m.clear(ctx, claim); err != nil {
				return nil, err
			}
			klog.FromContext(ctx).Info("Forgot what another boot prepared", "devices", r.deviceNames())
			r = nil
		default:
			return nil, fmt.Errorf("claim %s: no way on from phase %s", r.Claim, m.phase(r))
		}
	}
}
