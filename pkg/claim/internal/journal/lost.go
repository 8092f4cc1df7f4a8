// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Witness returns the devices that a claim without a readable record holds according to
// its CDI spec. The error wraps [gpu.ErrNotFound] or [gpu.ErrCorrupt] if there is no
// readable spec.
func (j *Journal) Witness(ctx context.Context, claim types.UID) (Holder, error) {
	owner, injections, err := j.Specs.Read(ctx, claim)
	if err != nil {
		return Holder{}, err
	}
	h := Holder{Phase: Unrecorded, Record: &Record{Plan: plan.Plan{Claim: plan.Ref{Namespace: owner.Namespace, Name: owner.Name, UID: claim}}}}
	var lost []LostDevice
	for _, in := range injections {
		injected, err := plan.ParseInjectionID(in.ID)
		if err != nil || injected.Claim != claim {
			continue
		}
		d := plan.Device{Name: injected.Device, ShareID: injected.Share}
		if injected.Share != nil && injected.Device.Kind.Takes() != kind.TakesSlots {
			d.Share = &share.Amount{}
		}
		d.MPS = clientOf(in)
		h.Devices = append(h.Devices, d)
		lost = append(lost, LostDevice{Name: injected.Device, Annotations: in.Annotations})
	}
	h.Journal = j.Lost(lost)
	return h, nil
}

// AnnotationMPS is the annotation of an injection for the [share.Client] of a device. It is
// used if the clients of the device have a namespace.
const AnnotationMPS = "mps"

// clientOf returns the client in the annotation of an injection; nil if there is none.
func clientOf(injection gpu.Injection) *share.Client {
	c := &share.Client{}
	if err := json.Unmarshal([]byte(injection.Annotations[AnnotationMPS]), c); err != nil || c.Namespace == "" {
		return nil
	}
	return c
}

// LostHolder returns the devices of a claim without a record. It returns none if there
// is no readable CDI spec.
func (j *Journal) LostHolder(ctx context.Context, claim types.UID) (Holder, error) {
	h, err := j.Witness(ctx, claim)
	if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
		return NoHolder(), nil
	}
	return h, err
}

// NoHolder returns a holder of nothing.
func NoHolder() Holder { return Holder{Record: &Record{}, Phase: Absent} }

// MayHaveSpec reports whether the step that writes the CDI spec has begun. Its undo removes
// any spec of the claim, also a partly written one.
func (p Progress) MayHaveSpec() bool {
	return slices.ContainsFunc(p.Journal, func(e Entry) bool { return e.Step == StepWriteCDI && e.State != Planned })
}

// SweepSpec reports whether the CDI spec of a claim without a readable record names the
// claim's devices. It removes a spec that is incomplete or names no device.
func (j *Journal) SweepSpec(ctx context.Context, claim types.UID) (complete bool, err error) {
	h, err := j.Witness(ctx, claim)
	switch {
	case errors.Is(err, gpu.ErrNotFound), errors.Is(err, gpu.ErrCorrupt):
		return false, j.Specs.Remove(ctx, claim)
	case err != nil:
		return false, err
	case len(h.Devices) == 0:
		return false, j.Specs.Remove(ctx, claim)
	}
	return true, nil
}
