// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

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
	h := Holder{Phase: Unrecorded, Record: &Record{Claim: Ref{Namespace: owner.Namespace, Name: owner.Name, UID: claim}}}
	var lost []LostDevice
	for _, in := range injections {
		device, shareID, shared := strings.Cut(strings.TrimPrefix(in.ID, injectionID(claim, "", "")), shareSeparator)
		name, err := kind.Parse(device)
		if err != nil {
			continue
		}
		d := Device{Name: device}
		if shared {
			d.ShareID = (*types.UID)(&shareID)
			if name.Kind.Takes() != kind.TakesSlots {
				d.Share = &Share{}
			}
		}
		d.MPS = clientOf(in)
		h.Devices, h.Names = append(h.Devices, d), append(h.Names, name)
		lost = append(lost, LostDevice{Name: name, Annotations: in.Annotations})
	}
	h.Journal = j.Lost(lost)
	return h, nil
}

// AnnotationMPS is the annotation of an injection that has the [Client] of a device whose
// clients have a namespace.
const AnnotationMPS = "mps"

// clientOf returns the client in the annotation of an injection; nil if there is none.
func clientOf(in gpu.Injection) *Client {
	c := &Client{}
	if err := json.Unmarshal([]byte(in.Annotations[AnnotationMPS]), c); err != nil || c.Namespace == "" {
		return nil
	}
	return c
}

// LostHolder returns the devices that a claim without a record holds; none if there is
// no readable CDI spec.
func (j *Journal) LostHolder(ctx context.Context, claim types.UID) (Holder, error) {
	h, err := j.Witness(ctx, claim)
	if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
		return NoHolder(), nil
	}
	return h, err
}

// NoHolder returns a holder of nothing.
func NoHolder() Holder { return Holder{Record: &Record{}, Phase: Absent} }

// LostSteps returns the steps that a claim with these devices may have done before
// its record was lost.
func (j *Journal) LostSteps(names []kind.Name) []Entry {
	lost := make([]LostDevice, len(names))
	for i, name := range names {
		lost[i].Name = name
	}
	return j.Lost(lost)
}

// IsStillLost reports whether the record has been adopted for a lost one and has not
// replaced its CDI spec yet.
func (r *Record) IsStillLost() bool {
	return r.Adopted && slices.ContainsFunc(r.Journal, func(e Entry) bool { return e.Step == StepWriteCDI && e.State == Planned })
}

// Adopt makes the record take over the devices of a claim with a lost record, if both
// have the same devices as far as the CDI spec names them. It reports whether it did.
// Until the CDI spec is written again, undoing the record keeps everything that the
// spec describes.
func (r *Record) Adopt(lost *Record) bool {
	if !slices.EqualFunc(r.Devices, lost.Devices, func(a, b Device) bool {
		name, err := kind.Parse(a.Name)
		return err == nil && a.Name == b.Name && a.InjectionID("", name) == b.InjectionID("", name)
	}) {
		return false
	}
	r.Adopted = true
	for i := range r.Devices {
		if c := r.Devices[i].MPS; c != nil {
			// Its containers keep the protocol that they were started with.
			c.Namespace = ""
			if was := lost.Devices[i].MPS; was != nil {
				c.Namespace = was.Namespace
			}
		}
	}
	for _, was := range lost.Journal {
		for i := range r.Journal {
			if e := &r.Journal[i]; e.is(was.Step, was.Device) {
				e.Result = was.Result
			}
		}
	}
	return true
}

// shareSeparator is in no name of a device.
const shareSeparator = "_"

// injectionID is unique over time, because runtimes may cache the meaning of an ID.
// A claim can have several shares of a device, so the ID of a share names the share
// too; the spec alone then distinguishes shares from whole devices.
func injectionID(claim types.UID, device string, share types.UID) string {
	id := string(claim) + "-" + device
	if share != "" {
		id += shareSeparator + string(share)
	}
	return id
}

// Injected is a device of a claim as the ID of its CDI device names it.
type Injected struct {
	Claim  types.UID
	Device kind.Name
}

// ParseInjectionID returns the claim and the device of a CDI device ID. The error wraps
// [gpu.ErrInvalid] if the ID is of another form.
func ParseInjectionID(id string) (Injected, error) {
	whole, _, _ := strings.Cut(id, shareSeparator)
	for i := range whole {
		if whole[i] != '-' {
			continue
		}
		if name, err := kind.Parse(whole[i+1:]); err == nil && i > 0 {
			return Injected{Claim: types.UID(whole[:i]), Device: name}, nil
		}
	}
	return Injected{}, fmt.Errorf("CDI device %q: %w: it names no device of a claim", id, gpu.ErrInvalid)
}

// InjectionID returns the unqualified CDI device ID of a device of the claim.
func (d Device) InjectionID(claim types.UID, name kind.Name) string {
	var share types.UID
	if d.IsShared(name) && d.ShareID != nil {
		share = *d.ShareID
	}
	return injectionID(claim, d.Name, share)
}

// SweepSpec reports whether the CDI spec of a claim without a readable record names the
// devices of the claim. It removes a spec that is incomplete or names no device.
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
