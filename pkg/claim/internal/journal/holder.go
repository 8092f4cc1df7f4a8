// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Holder is a claim that holds devices. Its record is shared with other readers and
// must not be changed.
type Holder struct {
	*Record
	Phase Phase
	Stamp store.Stamp // of the record; zero if there is none
}

// Began reports whether the claim may have done a step that is not undone.
func (h Holder) Began(step string, device kind.Name) bool {
	return slices.ContainsFunc(h.Journal, func(e Entry) bool { return e.isFor(step, device) && e.State != Planned })
}

// Others are the other claims that hold devices. They are loaded on first
// use and cached: a device's holders do not change while the caller holds the lock of
// the device, and a GPU's while it holds the GPU-wide lock.
type Others struct {
	journal *Journal
	claim   types.UID
	all     []Holder
	loaded  bool
}

// Others returns the holders but one claim; "" for all holders.
func (j *Journal) Others(claim types.UID) *Others { return &Others{journal: j, claim: claim} }

// List returns the claims, ordered by namespace, name and UID.
func (o *Others) List(ctx context.Context) ([]Holder, error) {
	if o.loaded {
		return o.all, nil
	}
	all, err := o.journal.Holders(ctx)
	if err != nil {
		return nil, err
	}
	o.all = slices.DeleteFunc(all, func(h Holder) bool { return h.Claim.UID == o.claim })
	o.loaded = true
	return o.all, nil
}

// ForPlan returns the facts about the claim that plans of other claims depend on.
func (h Holder) ForPlan() plan.Holder {
	facts := plan.Holder{Plan: h.Plan, Phase: string(h.Phase)}
	for _, e := range h.Journal {
		if e.Step == StepStartMPS && e.State != Planned {
			facts.Daemons = append(facts.Daemons, e.Device)
		}
	}
	return facts
}

// Forget empties the cache.
func (o *Others) Forget() { o.all, o.loaded = nil, false }

// IsLastUser reports whether no other claim has begun a step about the device.
func (o *Others) IsLastUser(ctx context.Context, step string, device kind.Name) (bool, error) {
	others, err := o.List(ctx)
	return !slices.ContainsFunc(others, func(h Holder) bool { return h.Began(step, device) }), err
}

// Holders returns all claims that hold devices according to the disk. The order is
// by namespace, name and UID.
func (j *Journal) Holders(ctx context.Context) ([]Holder, error) {
	// Specs are read before records: in the other order, a claim that is prepared in
	// between would look as if its record were lost.
	specs, err := j.Specs.List(ctx)
	if err != nil {
		return nil, err
	}
	records, err := j.cache.load(j)
	if err != nil {
		return nil, err
	}
	all := make([]Holder, 0, len(records))
	recorded := make(map[types.UID]bool, len(records))
	for _, cached := range records {
		recorded[cached.uid()] = true
		phase := j.Phase(cached.record)
		if phase == Stale {
			continue
		}
		all = append(all, Holder{Record: cached.record, Phase: phase, Stamp: cached.stamp})
	}
	for _, claim := range specs {
		if recorded[claim] {
			continue
		}
		h, err := j.Witness(ctx, claim)
		if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
			continue // it names no devices, and no container can use it
		}
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Holder) int { return compareRefs(a.Claim, b.Claim) })
	return all, nil
}
