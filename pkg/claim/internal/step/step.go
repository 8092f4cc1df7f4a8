// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
)

// Step is one kind of thing that a plan does to the node. All methods may be called
// at the same time for different devices. The caller holds the locks of the claim's
// devices and, if the step is GPU-wide, of their GPUs.
type Step interface {
	// Name is in records, logs and metrics.
	Name() string
	// GPUWide reports whether the step concerns other devices of the GPU too. A step
	// that is not GPU-wide may take long: it does not hold up these devices.
	GPUWide() bool

	// Needed returns what the plan needs the step for: devices of the claim, GPUs of
	// these, or "" for the claim as a whole. The step is done once for each name.
	Needed(p *plan.Plan) []string
	// Note reads the present state and stores in e.Result what Undo has to know even
	// if Do is never completed. It changes nothing on the node. If e has a result
	// already, it is of an earlier time.
	Note(ctx context.Context, w Work, e *journal.Entry) error
	// Do acts, after Note, and stores in e.Result what Undo needs. It succeeds if the
	// step is done already, with the e.Result of that time, so it also verifies and
	// repairs.
	Do(ctx context.Context, w Work, e *journal.Entry) error
	// Undo takes the step back unless another claim needs it. It succeeds if nothing
	// was done, and copes with the result of Note if Do was never completed. A step
	// in the state [journal.Lost] may never have been done, and need not be supported
	// on this node any more.
	Undo(ctx context.Context, w Work, e journal.Entry) error

	// Lost returns what a claim with a lost record may have done of the step for one
	// of its devices: the device and the result of the entry, if any.
	Lost(d journal.LostDevice) (device string, result []byte, ok bool)
	// Leftovers returns the devices or GPUs on which the step has left something that
	// may have no owner.
	Leftovers(ctx context.Context) ([]string, error)
	// Sweep removes what the step has left on one of them unless a claim needs it,
	// and reports whether it did. others are all claims. If something is in use, it
	// stays for a later sweep.
	Sweep(ctx context.Context, device string, others *journal.Others) (swept bool, err error)
}

// Cleaner is a step that has left something behind which new claims cannot have, and
// for which they need no step.
type Cleaner interface {
	// Clean removes from the devices of a new record what earlier claims have left,
	// or returns an error if it is not this driver's. It runs before all steps.
	Clean(ctx context.Context, w Work) error
}

// Work is a claim that a step works on.
type Work struct {
	*journal.Record
	// Others are the other claims that hold devices.
	Others *journal.Others
}
