// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Step is one kind of thing that a plan does to the node. All methods may be called
// at the same time for different devices. The caller holds the locks of the claim's
// devices and, if the step is GPU-wide, of their GPUs.
//
// The optional interfaces below are for steps that need them: [Noter], [Filer], [Cleaner],
// [Injector], [Witness] and [Sweeper].
type Step interface {
	// Name is in records, logs and metrics.
	Name() string
	// GPUWide reports whether the step concerns other devices of the GPU too. A step
	// that is not GPU-wide may take long: it does not hold up these devices.
	GPUWide() bool
	// Needed returns the devices for which the plan needs the step: devices of the
	// claim, their GPUs, or the zero value for the claim as a whole. The step is done
	// once for each.
	Needed(p plan.Plan) []kind.Name
	// Do changes the node and returns the data that Undo needs, also with an error. If
	// it returns nil, the result of e remains. It succeeds if the step is done
	// already, so it also verifies and repairs.
	Do(ctx context.Context, w Work, e journal.Entry) (result json.RawMessage, err error)
	// Undo reverts the step unless another claim needs it. It succeeds if nothing was
	// done, and accepts the result of Note if Do did not complete. A step in the state
	// [journal.Lost] may not have been done, and may no longer be supported on this
	// node.
	Undo(ctx context.Context, w Work, e journal.Entry) error
}

// Noter is a step that reads the node before it acts.
type Noter interface {
	// Note returns the data that Undo needs even if Do does not complete. If it
	// returns nil, the result of e remains, which is an earlier one. It changes
	// nothing on the node. It is recorded before Do is called.
	Note(ctx context.Context, w Work, e journal.Entry) (result json.RawMessage, err error)
}

// Filer is a step that only changes files of its claim, and is no [Noter]. Its undo needs no
// result. The start of several such steps in a row is recorded at once.
type Filer interface{ OnlyFiles() }

// Cleaner is a step whose leftovers conflict with new claims that do not need the step
// themselves.
type Cleaner interface {
	// Clean removes the leftovers of earlier claims from the devices of a new record.
	// It returns an error if the leftovers are not this driver's. It runs before all
	// steps.
	Clean(ctx context.Context, w Work) error
}

// Injector is a step that adds something to containers.
type Injector interface {
	// Inject adds to an injection what the step adds to containers that use a device
	// of the record. It adds nothing if the device does not need the step. It is
	// called when all steps before [writeCDI] are done.
	Inject(ctx context.Context, r *journal.Record, d plan.Device, injection *gpu.Injection) error
}

// Witness is a step that a claim with a lost record may have done.
type Witness interface {
	// Lost reports whether the claim may have done the step for one of its devices. It
	// also returns the device and the result of the entry, if any.
	Lost(d journal.LostDevice) (device kind.Name, result json.RawMessage, ok bool)
}

// Sweeper is a step that can leave something behind that no claim owns.
type Sweeper interface {
	// Leftovers returns the devices or GPUs that have something of the step, with or
	// without an owner. With an error the list is not complete.
	Leftovers(ctx context.Context) ([]kind.Name, error)
	// Sweep removes unneeded leftovers of the step from a device or GPU, and reports
	// whether it did. Leftovers that a claim needs remain. others are all claims.
	// Leftovers in use stay for a later sweep.
	Sweep(ctx context.Context, device kind.Name, others *journal.Others) (swept bool, err error)
}

// Work is a claim that a step works on. Steps read it and change nothing of it.
type Work struct {
	*journal.Record
	// Others are the other claims that hold devices.
	Others *journal.Others
}
