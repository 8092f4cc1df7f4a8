// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// LostDevice is a device of a claim whose record was lost.
type LostDevice struct {
	Name kind.Name
	// Annotations of its device in the CDI spec; nil if there is no spec.
	Annotations map[string]string
}

// Journal reads and writes the records of claims. Its methods may be called at the
// same time; the caller of one that changes a claim holds the lock of that claim.
type Journal struct {
	Records *store.Store
	Specs   ports.CDI
	// BootID names this boot of the machine.
	BootID string
	// Lost returns the steps that a claim with these devices may have done. They are
	// in the order of the steps and in the state [Lost].
	Lost func(devices []LostDevice) []Entry

	cache recordCache
}

// Close ends the watch of the records. Only few watches are free on a machine. The journal
// still works, with more reads.
func (j *Journal) Close() error { return j.cache.close() }

// Phase returns the phase of a record, nil for none.
func (j *Journal) Phase(r *Record) Phase { return r.Phase(j.BootID) }

// Read returns the record of a claim from the disk, nil if there is none. The error
// wraps [gpu.ErrCorrupt] or, for a record of a newer release, [gpu.ErrNotSupported].
func (j *Journal) Read(claim types.UID) (*Record, error) {
	payload, err := j.Records.Read(string(claim))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, store.ErrCorrupt):
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	case errors.Is(err, store.ErrNewer):
		return nil, fmt.Errorf("%w: %w: it was written by a newer release, which is needed to go on", gpu.ErrNotSupported, err)
	case err != nil:
		return nil, err
	}
	r, err := decode(claim, payload)
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", claim, err)
	}
	return r, nil
}

// Load returns the record of a claim, nil if there is none. It moves a damaged record
// to quarantine, which is as if there were none.
func (j *Journal) Load(ctx context.Context, claim types.UID) (*Record, error) {
	r, err := j.Read(claim)
	if !errors.Is(err, gpu.ErrCorrupt) {
		return r, err
	}
	klog.FromContext(ctx).Error(err, "Moving the record to quarantine", "claimUID", claim)
	return nil, j.Records.Quarantine(string(claim), err.Error())
}

// Save writes a record.
func (j *Journal) Save(r *Record) error {
	payload, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of claim %s: %w", r.Claim, err)
	}
	return j.Records.Write(string(r.Claim.UID), payload)
}

// Delete deletes the record of a claim. It succeeds if there is none.
func (j *Journal) Delete(claim types.UID) error { return j.Records.Delete(string(claim)) }

// Clear removes the CDI spec and the record of a claim without undoing its steps.
// Nothing else can be left of a claim of another boot: what its steps created ended
// with that boot, and the IDs in their results may name other things by now.
func (j *Journal) Clear(ctx context.Context, claim types.UID) error {
	if err := j.Specs.Remove(ctx, claim); err != nil {
		return err
	}
	return j.Delete(claim)
}

// Claims returns the claims that have a record or a CDI spec, in ascending order.
func (j *Journal) Claims(ctx context.Context) ([]types.UID, error) {
	keys, err := j.Records.Keys()
	if err != nil {
		return nil, err
	}
	specs, err := j.Specs.List(ctx)
	if err != nil {
		return nil, err
	}
	claims := make([]types.UID, 0, len(keys)+len(specs))
	for _, key := range keys {
		claims = append(claims, types.UID(key))
	}
	claims = append(claims, specs...)
	slices.Sort(claims)
	return slices.Compact(claims), nil
}

// IsUnchanged reports whether the record of a holder is still the one that was
// listed. The caller holds the lock of the claim.
func (j *Journal) IsUnchanged(claim types.UID, phase Phase, stamp store.Stamp) (bool, error) {
	if phase == Unrecorded {
		r, err := j.Read(claim)
		if errors.Is(err, gpu.ErrCorrupt) || errors.Is(err, gpu.ErrNotSupported) {
			return true, nil
		}
		return r == nil, err
	}
	now, err := j.Records.Stamp(string(claim))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return now == stamp, err
}
