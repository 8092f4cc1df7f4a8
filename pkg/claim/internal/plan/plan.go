// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// Make decides how a claim uses the devices that were allocated to it. Conflicts with other
// claims are found later, by [Against].
func Make(a Allocation, inputs Inputs) (Plan, error) {
	requests := make([]deviceRequest, len(a.requests))
	for i, d := range a.requests {
		d, err := inputs.resolve(d)
		if err != nil {
			return Plan{}, d.wrap(err)
		}
		requests[i] = d
	}
	planned := Plan{Claim: a.Claim}
	for _, d := range requests {
		device := d.device
		device.UUID = d.gpu.UUID
		var err error
		if device.Terms, err = inputs.terms(d, requests); err == nil {
			err = inputs.checkCombination(device, planned.Devices)
		}
		if err == nil {
			err = inputs.checkUse(d, d.sharingOn(device.Terms), use.ComputeMode)
		}
		if err != nil {
			return Plan{}, d.wrap(err)
		}
		planned.Devices = append(planned.Devices, device)
	}
	return planned, nil
}

// Refusal is an error that reaches a user, with details that are for administrators
// only: names of what belongs to other tenants. The details go to the log.
type Refusal struct {
	Err     error
	Details []any // keys and values
}

func (r Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error without the details.
func (r Refusal) Unwrap() error { return r.Err }

// Refuse returns a [Refusal].
func Refuse(err error, details ...any) error { return Refusal{Err: err, Details: details} }

// DetailsOf returns the refusal in an error's chain, if there is one.
func DetailsOf(err error) (r Refusal, ok bool) {
	ok = errors.As(err, &r)
	return r, ok
}
