// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/step"
)

// job is work on one claim. The lock of the claim and the locks of its devices are
// held.
type job struct {
	step.Work
	claim types.UID
	wide  *gpuWideLock
}

// lockGPUs takes the GPU-wide lock if it is not held. It then drops the cached list of
// other holders, which may have changed while the lock was free.
func (j *job) lockGPUs(ctx context.Context) error {
	taken, err := j.wide.take(ctx)
	if taken {
		j.Others.Forget()
	}
	return err
}

// lockFor takes the GPU-wide lock for a step that is GPU-wide. For any other step
// it releases the lock.
func (j *job) lockFor(ctx context.Context, s step.Step) error {
	if s.GPUWide() {
		return j.lockGPUs(ctx)
	}
	j.wide.release()
	return nil
}

// build does all steps of a new record. Each step is in the journal before it acts,
// and one write records the result of a step and the start of the next, or of the next
// steps that only change files. If a step fails, build undoes the steps.
func (m *Manager) build(ctx context.Context, j *job, to prepared) error {
	err := m.doSteps(ctx, j, to)
	if err != nil {
		// Undo even if the call was canceled.
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime(ctx))
		defer cancel()
		return errors.Join(err, m.undo(undoing, j))
	}
	klog.FromContext(ctx).Info("Prepared", "devices", j.Names())
	return nil
}

// doSteps does the steps. It releases the GPU-wide lock for a step that is not
// GPU-wide: such a step may take long, and the record already contains the devices of
// the claim.
func (m *Manager) doSteps(ctx context.Context, j *job, to prepared) error {
	if err := j.lockGPUs(ctx); err != nil {
		return err
	}
	others, err := j.Others.List(ctx)
	if err != nil {
		return err
	}
	holders := make([]plan.Holder, len(others))
	for i, h := range others {
		holders[i] = h.ForPlan()
	}
	if j.Plan, err = plan.Against(j.Plan, to.inputs, holders); err != nil {
		return err
	}
	if err := m.checkUnused(ctx, j, to.fromAPI); err != nil {
		return err
	}
	if err := m.steps.Clean(ctx, j.Work); err != nil {
		return err
	}
	for i := range j.Journal {
		e := &j.Journal[i]
		s, err := m.note(ctx, j, e)
		if err != nil {
			return err
		}
		if e.State == journal.Planned {
			m.markStarted(j, i)
			if err := m.journal.Save(j.Record); err != nil {
				return err
			}
		}
		if !s.GPUWide() {
			j.wide.release()
		}
		if err := m.doStep(ctx, j, e); err != nil {
			return err
		}
		e.State = journal.Done
	}
	return m.journal.Save(j.Record)
}

// markStarted marks a step of the journal as started. If it only changes files, it also marks
// the steps after it that do: their undo needs no result, and they need not have acted.
func (m *Manager) markStarted(j *job, first int) {
	j.Journal[first].State = journal.Started
	if !m.steps.OnlyFiles(j.Journal[first].Step) {
		return
	}
	for i := first + 1; i < len(j.Journal) && m.steps.OnlyFiles(j.Journal[i].Step); i++ {
		j.Journal[i].State = journal.Started
	}
}

// doAgain does every step of a prepared claim again. It returns how many succeeded.
func (m *Manager) doAgain(ctx context.Context, j *job) (verified int, err error) {
	changed := false
	for i := range j.Journal {
		e := &j.Journal[i]
		did, err := m.doEntryAgain(ctx, j, e)
		if err != nil {
			return i, fmt.Errorf("verify: %w", err)
		}
		changed = changed || did
	}
	if !changed {
		return len(j.Journal), nil
	}
	return len(j.Journal), m.journal.Save(j.Record)
}

// doEntryAgain does a step again. It records what the step notes before it acts, and reports whether the result of the step
// has changed, which is not recorded yet.
func (m *Manager) doEntryAgain(ctx context.Context, j *job, e *journal.Entry) (changed bool, err error) {
	s, err := m.steps.Find(e.Step)
	if err != nil {
		return false, err
	}
	if err := j.lockFor(ctx, s); err != nil {
		return false, err
	}
	before := e.Result
	if _, err := m.note(ctx, j, e); err != nil {
		return false, err
	}
	if !bytes.Equal(before, e.Result) {
		if err := m.journal.Save(j.Record); err != nil {
			return false, err
		}
	}
	before = e.Result
	err = m.doStep(ctx, j, e)
	return !bytes.Equal(before, e.Result), err
}

// undo undoes the steps in reverse order and deletes the record. If a step fails, the
// record stays for the next attempt. The GPU-wide lock is held from undoing the
// GPU-wide steps until the record is deleted. So if two claims are undone at the same
// time, the second finds that it is the last user.
func (m *Manager) undo(ctx context.Context, j *job) error {
	if err := m.undoSteps(ctx, j, j.Journal); err != nil {
		return err
	}
	return m.journal.Delete(j.claim)
}

// undoSteps undoes steps in reverse order.
func (m *Manager) undoSteps(ctx context.Context, j *job, entries []journal.Entry) error {
	for _, e := range slices.Backward(entries) {
		if e.State == journal.Planned {
			continue
		}
		s, err := m.steps.Find(e.Step)
		if err != nil {
			return err
		}
		if err := j.lockFor(ctx, s); err != nil {
			return fmt.Errorf("undo %s: %w", e.Step, err)
		}
		start := time.Now()
		err = s.Undo(ctx, j.Work, e)
		m.options.Observer.StepDone(e.Step, true, time.Since(start), err)
		if err != nil {
			return fmt.Errorf("undo %s: %w", e.Step, err)
		}
	}
	return nil
}

// releaseLost undoes the steps of a claim without a readable record, and removes its
// CDI spec. It undoes only steps on devices that the spec names. The caller holds the
// GPU-wide lock afterwards.
func (m *Manager) releaseLost(ctx context.Context, j *job) error {
	if len(j.Devices) == 0 {
		return nil
	}
	if err := m.undoSteps(ctx, j, j.Journal); err != nil {
		return err
	}
	if err := j.lockGPUs(ctx); err != nil {
		return err
	}
	return m.options.CDI.Remove(ctx, j.claim)
}

// note lets a step read the node before it acts, and keeps its result.
func (m *Manager) note(ctx context.Context, j *job, e *journal.Entry) (step.Step, error) {
	s, err := m.steps.Find(e.Step)
	if err != nil {
		return nil, err
	}
	noter, ok := s.(step.Noter)
	if !ok {
		return s, nil
	}
	result, err := noter.Note(ctx, j.Work, *e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Step, err)
	}
	setResult(e, result)
	return s, nil
}

// doStep does a step and keeps its result.
func (m *Manager) doStep(ctx context.Context, j *job, e *journal.Entry) error {
	s, err := m.steps.Find(e.Step)
	if err != nil {
		return err
	}
	start := time.Now()
	result, err := s.Do(ctx, j.Work, *e)
	m.options.Observer.StepDone(e.Step, false, time.Since(start), err)
	setResult(e, result)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Step, err)
	}
	return nil
}

func setResult(e *journal.Entry, result json.RawMessage) {
	if result != nil {
		e.Result = result
	}
}
