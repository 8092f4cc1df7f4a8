// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// decode reads the payload of the record of a claim. The error wraps
// [gpu.ErrCorrupt] or, for a record of a newer release, [gpu.ErrNotSupported].
func decode(claim types.UID, payload []byte) (*Record, error) {
	r := &Record{}
	err := json.Unmarshal(payload, r)
	if err != nil {
		// A newer release's record need not have these types, but has a version.
		var newer struct{ Version int }
		if json.Unmarshal(payload, &newer) == nil {
			r.Version = newer.Version
		}
	}
	if r.Version > Version {
		return nil, fmt.Errorf("%w: record version %d, this release knows %d: it was written by a newer release, which is needed to go on", gpu.ErrNotSupported, r.Version, Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	if err := r.check(claim); err != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrCorrupt, err)
	}
	return r, nil
}

// check returns an error if the record is not complete or not sufficient to
// unprepare its claim.
func (r *Record) check(claim types.UID) error {
	if r.Version < 1 || r.Claim.UID != claim || len(r.Devices) == 0 || len(r.Journal) == 0 {
		return errors.New("not a complete record of this claim")
	}
	if _, err := r.CDIDeviceIDs(); err != nil {
		return err
	}
	for _, e := range r.Journal {
		if err := e.check(); err != nil {
			return err
		}
	}
	for _, d := range r.Devices {
		if err := check(d); err != nil {
			return fmt.Errorf("device %s: %w", d.Name, err)
		}
		if _, err := r.DeviceUUID(d); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if the device could not be compared with those of other
// claims.
func check(d plan.Device) error {
	switch {
	case d.Name == (kind.Name{}):
		return errors.New("without a name")
	case d.Share != nil && d.Share.Memory == 0:
		return errors.New("a share of nothing")
	case d.Limit != nil && (d.Limit.Memory == 0 || d.Limit.Containers < 1):
		return errors.New("a limit of nothing")
	case d.MPS != nil && d.MPS.Daemon == (kind.Name{}):
		return errors.New("a client of no MPS daemon")
	}
	return nil
}
