// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// List is all steps in their order.
type List []Step

// New returns the list of steps. A step that the node does not support stays in the
// list, because records may have it.
func New(parts ports.Node) List {
	partitions := newKeptPartitions(parts)
	steps := List{
		newEnsureMIGMode(parts, partitions),
		newCreatePartition(parts, partitions),
		newSetTimeSlice(parts),
		newSetComputeMode(parts),
		startMPS{parts.MPS},
		newLimitMemory(parts),
	}
	return append(steps, writeCDI{parts, steps})
}

// find returns the step of a type; false if this node does not support it.
func find[S Step](l List) (s S, ok bool) {
	for _, item := range l {
		if s, ok = item.(S); ok {
			return s, true
		}
	}
	return s, false
}

// Find returns the step of a name.
func (l List) Find(name string) (Step, error) {
	for _, s := range l {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, notSupported(name)
}

// OnlyFiles reports whether the step of a name is a [Filer].
func (l List) OnlyFiles(name string) bool {
	s, err := l.Find(name)
	_, is := s.(Filer)
	return err == nil && is
}

// Journal returns the steps of a plan, none of them begun.
func (l List) Journal(p plan.Plan) []journal.Entry {
	var entries []journal.Entry
	for _, s := range l {
		for _, device := range s.Needed(p) {
			entries = add(entries, journal.Entry{Step: s.Name(), Device: device})
		}
	}
	return entries
}

// Lost returns the steps that a claim with these devices may have done before its
// record was lost.
func (l List) Lost(devices []journal.LostDevice) []journal.Entry {
	var entries []journal.Entry
	for _, s := range l {
		w, ok := s.(Witness)
		if !ok {
			continue
		}
		for _, d := range devices {
			if device, result, ok := w.Lost(d); ok {
				entries = add(entries, journal.Entry{Step: s.Name(), Device: device, State: journal.Lost, Result: result})
			}
		}
	}
	return entries
}

func add(entries []journal.Entry, e journal.Entry) []journal.Entry {
	if slices.ContainsFunc(entries, func(other journal.Entry) bool { return other.Step == e.Step && other.Device == e.Device }) {
		return entries
	}
	return append(entries, e)
}

// Clean runs all steps that are a [Cleaner], in reverse order: partitions go before the
// MIG mode.
func (l List) Clean(ctx context.Context, w Work) error {
	for _, s := range slices.Backward(l) {
		if c, ok := s.(Cleaner); ok {
			if err := c.Clean(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inject runs all steps that are an [Injector] for a device of a record.
func (l List) Inject(ctx context.Context, r *journal.Record, d plan.Device, injection *gpu.Injection) error {
	for _, s := range l {
		if i, ok := s.(Injector); ok {
			if err := i.Inject(ctx, r, d, injection); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsupported is a step that cannot be done nor undone: other settings of this agent, or
// another release, have left it in records.
type unsupported struct{ Step }

func notSupported(step string) error {
	return fmt.Errorf("step %s: %w on this node, or not by this release", step, gpu.ErrNotSupported)
}

func (s unsupported) Note(context.Context, Work, journal.Entry) (json.RawMessage, error) {
	return nil, notSupported(s.Name())
}

func (s unsupported) Do(context.Context, Work, journal.Entry) (json.RawMessage, error) {
	return nil, notSupported(s.Name())
}

// Undo does nothing for a step that a claim with a lost record may have done.
func (s unsupported) Undo(_ context.Context, _ Work, e journal.Entry) error {
	if e.State == journal.Lost {
		return nil
	}
	return notSupported(s.Name())
}

// Inject refuses a device of which the step was done: its containers would lack a part
// that they need.
func (s unsupported) Inject(_ context.Context, r *journal.Record, d plan.Device, _ *gpu.Injection) error {
	if _, injects := s.Step.(Injector); injects && (r.Has(s.Name(), d.Name) || r.Has(s.Name(), kind.Name{})) {
		return notSupported(s.Name())
	}
	return nil
}

func (s unsupported) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	if w, ok := s.Step.(Witness); ok {
		return w.Lost(d)
	}
	return kind.Name{}, nil, false
}
