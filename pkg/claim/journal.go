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

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// entry is one step of a plan in the journal.
type entry struct {
	Step string `json:"step"`
	// Device is what the step is about: a device of the claim or the GPU that it
	// is on. It is empty for a step about the claim as a whole.
	Device string `json:"device,omitempty"`
	// State is empty while the step is only planned.
	State state `json:"state,omitempty"`
	// Result is what the step wants to know when it is done again or undone,
	// such as the ID of what it created; in a form of its own.
	Result json.RawMessage `json:"result,omitempty"`
}

type state string

const (
	started state = "started" // it may have acted
	done    state = "done"
)

// job is work on one claim, while its lock and those of its devices are held.
type job struct {
	*record
	*around
	wide *gpuWide
}

// lockGPUs takes the GPU-wide lock if it is not held. What other claims hold on
// these GPUs may have changed since it was held last.
func (j job) lockGPUs(ctx context.Context) error {
	taken, err := j.wide.take(ctx)
	if taken {
		j.forget()
	}
	return err
}

// isGPUWide reports whether a step concerns other devices of a GPU, and is done
// and undone under the GPU-wide lock. In a plan these steps come first.
func isGPUWide(step string) bool { return step != stepStartMPS && step != stepWriteCDI }

// step is one kind of thing that a plan does to the node.
type step interface {
	// begin looks at what is there and puts into e.Result what undo has to know
	// even if do never comes to its end. It changes nothing. An e.Result that is
	// there already is of an earlier time.
	begin(ctx context.Context, j job, e *entry) error
	// do makes it so, after begin, and puts into e.Result what undo needs. It
	// succeeds where it is done already, with e.Result from then if that was
	// recorded, and so it also verifies and repairs.
	do(ctx context.Context, j job, e *entry) error
	// undo makes it not so. It succeeds where nothing was done, and must make
	// do without e.Result if do never came to its end.
	undo(ctx context.Context, j job, e entry) error
}

// done reports whether all steps are.
func (r *record) done() bool {
	return !slices.ContainsFunc(r.Journal, func(e entry) bool { return e.State != done })
}

// build does all steps of a new record: each is in the journal before it acts,
// and the write that records its result also names the next. On failure it
// undoes what it did.
func (m *Manager) build(ctx context.Context, j job) error {
	err := m.advance(ctx, j)
	if err != nil {
		// What was begun must be undone even if nobody waits for it any more.
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime(ctx))
		defer cancel()
		return errors.Join(err, m.undo(undoing, j))
	}
	klog.FromContext(ctx).Info("Prepared", "devices", j.deviceNames())
	return nil
}

// advance does the steps. Those that concern one device only are done without the
// GPU-wide lock: they may take long, and by then the record says what the claim
// holds.
func (m *Manager) advance(ctx context.Context, j job) error {
	if err := j.lockGPUs(ctx); err != nil {
		return err
	}
	if err := m.free(ctx, j); err != nil {
		return err
	}
	if err := m.checkUnused(ctx, j); err != nil {
		return err
	}
	if err := m.wholeAgain(ctx, j); err != nil {
		return err
	}
	for i := range j.Journal {
		e := &j.Journal[i]
		if err := m.begin(ctx, j, e); err != nil {
			return err
		}
		e.State = started
		if err := m.save(j.record); err != nil {
			return err
		}
		if !isGPUWide(e.Step) {
			j.wide.release()
		}
		if err := m.do(ctx, j, e); err != nil {
			return err
		}
		e.State = done
	}
	return m.save(j.record)
}

// verify does every step of a prepared claim again, which repairs what is not
// as it should be.
func (m *Manager) verify(ctx context.Context, j job) error {
	changed := false
	for i := range j.Journal {
		e := &j.Journal[i]
		if err := j.lockFor(ctx, *e); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		before := e.Result
		if err := m.begin(ctx, j, e); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if !bytes.Equal(before, e.Result) {
			if err := m.save(j.record); err != nil {
				return err
			}
		}
		before = e.Result
		if err := m.do(ctx, j, e); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		changed = changed || !bytes.Equal(before, e.Result)
	}
	if !changed {
		return nil
	}
	return m.save(j.record)
}

// undo runs the journal backwards and deletes it. What it fails at stays in the
// record for the next attempt. The record is deleted under the same GPU-wide lock
// as that under which the GPU-wide steps are undone: another claim that is undone
// at the same time finds that it is the last user, or this one does.
func (m *Manager) undo(ctx context.Context, j job) error {
	if j.stillLost() {
		if err := m.undoAdopted(ctx, j); err != nil {
			return err
		}
		return m.Records.Delete(string(j.Claim.UID))
	}
	if j.Adopted {
		if err := m.releaseLost(ctx, j); err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(j.Journal) {
		if e.State == "" {
			continue
		}
		if err := j.lockFor(ctx, e); err != nil {
			return fmt.Errorf("undo %s: %w", e.Step, err)
		}
		if err := m.undoStep(ctx, j, e); err != nil {
			return err
		}
	}
	return m.Records.Delete(string(j.Claim.UID))
}

// lockFor takes the GPU-wide lock for a step that is done or undone under it, and
// releases it for one that is not.
func (j job) lockFor(ctx context.Context, e entry) error {
	if isGPUWide(e.Step) {
		return j.lockGPUs(ctx)
	}
	j.wide.release()
	return nil
}

// clear removes the CDI spec and the record of a claim without undoing its
// steps. Of another boot's claim nothing else can be left: what its steps
// created went with that boot, and the IDs in their results may be somebody
// else's by now.
func (m *Manager) clear(ctx context.Context, claim types.UID) error {
	if err := m.CDI.Remove(ctx, claim); err != nil {
		return err
	}
	return m.Records.Delete(string(claim))
}

func (m *Manager) begin(ctx context.Context, j job, e *entry) error {
	s, err := m.step(e.Step)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, j, e); err != nil {
		return fmt.Errorf("%s: %w", e.Step, err)
	}
	return nil
}

func (m *Manager) do(ctx context.Context, j job, e *entry) error {
	return m.observe(e.Step, false, func(s step) error { return s.do(ctx, j, e) })
}

func (m *Manager) undoStep(ctx context.Context, j job, e entry) error {
	return m.observe(e.Step, true, func(s step) error { return s.undo(ctx, j, e) })
}

func (m *Manager) observe(name string, undo bool, act func(step) error) error {
	s, err := m.step(name)
	if err != nil {
		return err
	}
	start := time.Now()
	err = act(s)
	m.Observer.StepDone(name, undo, time.Since(start), err)
	if err != nil {
		verb := ""
		if undo {
			verb = "undo "
		}
		return fmt.Errorf("%s%s: %w", verb, name, err)
	}
	return nil
}

func (m *Manager) step(name string) (step, error) {
	s, ok := m.steps[name]
	if !ok {
		return nil, fmt.Errorf("step %s: %w on this node, or not by this release", name, gpu.ErrNotSupported)
	}
	return s, nil
}
